"""The outputs that the golden tests compare: each function computes one of them from `inputs.json`.

All imports of the package and all of its argument names that the golden tests use are in this module.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import nas_rlm
import search_spaces
from nas_rlm import RLM
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from nas_rlm.text import from_architecture, from_onnx
from tests.golden.networks import FOREIGN
from tests.golden.programs import PROGRAMS

FOLDER = Path(__file__).parent
MODELS = ("nas", "nas-fast", "pretrained", "programs")
QUANTILES = (0.1, 0.5, 0.9)
SAMPLES = 8
SPACES = {  # objectives to predict; the models nas and nas-fast were not trained on the last space
    "nasbench201": ("accuracy", "latency/pixel3", "latency/eyeriss", "accuracy/cifar100", "flops"),
    "nasbench101": ("accuracy", "accuracy/cifar10_4ep"),
    "nats_size": ("accuracy", "accuracy/imagenet16_120", "params"),
    "fbnet": ("latency/pixel3", "latency/fpga", "latency/1080ti_64"),
    "ofa_mbv3": ("accuracy", "latency/v100_1"),
    "nds_darts": ("accuracy", "latency/onceNAS_gpu"),
    "hiaml": ("accuracy", "latency/pixel3"),
}
PRETRAINED = ("flops", "params", "activations", "layers", "convs/params", "pointwise/macs")
ALGORITHMS = ("nsga2", "nsga3", "sms-emoa", "evolution", "local", "random")
POPULATION, GENERATIONS = 12, 4
LABELS = {  # space, architectures of which so many are held out, objective and a value of each
    "nats_size": (16, None, "accuracy", lambda logarithm: 20 + 8 * logarithm),
    "nasbench201": (12, None, "latency/measured", lambda logarithm: math.exp(1.15 * (logarithm - 7.5))),
    "snas": (28, 20, "accuracy", lambda logarithm: 30 + 8 * logarithm),
}


def sample_inputs() -> dict[str, Any]:
    """Architectures of every space, in its notation, and architectures with made-up measurements."""
    architectures, labels = {}, {}
    for name in search_spaces.names():
        space, rng = search_spaces.get(name), np.random.default_rng(20)
        architectures[name] = [str(space.sample(rng)) for _ in range(3)]
    for name, (count, held, objective, value) in LABELS.items():
        rows = [
            [str(a), round(value(math.log10(max(1, space.flops(a)))) * (1 + 0.004 * (i * 7 % 11)), 4)]
            for space in [search_spaces.get(name)]
            for i, a in enumerate(sample_labelled(space, count, held))
        ]
        labels[name] = {"objective": objective, "rows": rows}
    return {"architectures": architectures, "labels": labels}


def sample_labelled(space: Any, count: int, held: int | None) -> list[Any]:
    """Different architectures, so many of which fine-tuning holds out, if that matters."""
    rng, found, left = np.random.default_rng(21), {}, {True: held, False: count - (held or 0)}
    while len(found) < count:
        architecture = space.sample(rng)
        digest = sha256(f"0:{space.key(architecture)}")
        side = held is not None and int(digest[:8], 16) / 2**32 < 0.2
        if str(architecture) not in found and left[side]:
            found[str(architecture)] = architecture
            left[side] -= 1
    return list(found.values())


@cache
def inputs() -> dict[str, Any]:
    """What `sample_inputs` gave when the outputs were recorded for the first time."""
    found: dict[str, Any] = json.loads((FOLDER / "inputs.json").read_text())
    return found


@cache
def model(name: str) -> RLM:
    """A shipped model."""
    return RLM.load(name)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def space_outputs(name: str, folder: Path) -> Any:
    """Texts, tokens, costs, genomes and neighbours of a space's architectures."""
    space, found = search_spaces.get(name), []
    architectures = [space.parse(a) for a in inputs()["architectures"][name]]
    for i, architecture in enumerate(architectures):
        text, rng = from_architecture(space, architecture), np.random.default_rng(i)
        exported = from_onnx(space.to_onnx(architecture))
        ids = model("nas").tokenizer.encode(text)
        found.append(
            {
                "notation": str(architecture),
                "text": sha256(text),
                "text of the ONNX model": sha256(exported),
                "characters": len(text),
                "tokens": len(ids),
                "token ids": sha256(" ".join(map(str, ids))),
                "flops": space.flops(architecture),
                "params": space.params(architecture),
                "shape": list(space.shape(architecture)),
                "genome": sha256(str(space.encode(architecture).tolist())),
                "key": sha256(space.key(architecture)),
                "mutated": sha256(str(space.mutate(architecture, rng))),
                "crossed": sha256(str(space.crossover(architecture, architectures[i - 1], rng))),
            }
        )
    return {"genes": list(space.genes), "size": space.size, "architectures": found}


def foreign_text(name: str, folder: Path) -> Any:
    """Text and tokens of an ONNX model that no search space wrote."""
    text = from_onnx(FOREIGN[name]())
    ids = model("nas").tokenizer.encode(text)
    return {"text": text, "tokens": len(ids), "token ids": sha256(" ".join(map(str, ids)))}


def predictions(rlm: RLM, space: str, architectures: Sequence[str], objectives: Sequence[str]) -> Any:
    """Medians, quantiles and draws of architectures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "medians": rlm.predict(space, architectures, objectives).tolist(),
            "quantiles": rlm.predict(space, architectures, objectives, quantiles=QUANTILES).tolist(),
            "samples": rlm.sample(space, architectures, objectives, num_samples=SAMPLES, seed=1).tolist(),
        }


def text_predictions(rlm: RLM, space: str, texts: Sequence[str], objectives: Sequence[str]) -> Any:
    """Medians, quantiles and draws of texts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "medians": rlm.predict_text(texts, objectives, space=space).tolist(),
            "quantiles": rlm.predict_text(texts, objectives, quantiles=QUANTILES, space=space).tolist(),
            "samples": rlm.sample_text(texts, objectives, num_samples=SAMPLES, seed=1, space=space).tolist(),
        }


def network_predictions(name: str, folder: Path) -> Any:
    """What a model of networks predicts of architectures, and of ONNX models in a space and in none."""
    rlm, architectures = model(name), inputs()["architectures"]
    found = {
        space: predictions(rlm, space, architectures[space], PRETRAINED if name == "pretrained" else some)
        for space, some in SPACES.items()
    }
    some = PRETRAINED if name == "pretrained" else ("accuracy", "latency/pixel3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for space in ("", "nasbench201"):
            models = [make() for make in FOREIGN.values()]
            found[f"ONNX models, space {space!r}"] = {
                "quantiles": rlm.predict_onnx(models, some, quantiles=QUANTILES, space=space).tolist()
            }
    return found


def program_predictions(name: str, folder: Path) -> Any:
    """What a model of programs predicts of each kind of program."""
    rlm, found = model(name), {}
    for kind, (_, space, objectives, texts) in PROGRAMS.items():
        found[kind] = text_predictions(rlm, space, texts, objectives)
    return found


def run(*arguments: object) -> None:
    """A command in this process."""
    if main([str(a) for a in arguments]):
        raise AssertionError(f"nas-rlm {' '.join(map(str, arguments))} failed")


def read_csv(path: Path) -> Any:
    """The header of a CSV file and its rows, numbers as such and files by their names alone."""

    def read(cell: str) -> Any:
        try:
            return float(cell)
        except ValueError:
            return Path(cell).name if cell.startswith(str(path.parent)) else cell

    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return {"header": header, "rows": [[read(cell) for cell in row] for row in rows]}


def predict_command(_: str, folder: Path) -> Any:
    """predict and rank of architectures."""
    archs = folder / "archs.txt"
    archs.write_text("".join(f"{a}\n" for a in inputs()["architectures"]["nasbench201"]))
    known = ("--space", "nasbench201", "--archs", archs, "--quantiles", ".1,.9")
    run("predict", *known, "--objectives", "accuracy,flops,latency/eyeriss", "--out", folder / "p.csv")
    run("rank", *known, "--by", "latency/pixel3", "--top", "2", "--out", folder / "r.csv")
    return {"predict": read_csv(folder / "p.csv"), "rank": read_csv(folder / "r.csv")}


def onnx_command(_: str, folder: Path) -> Any:
    """predict of ONNX files."""
    files = [folder / f"{name}.onnx" for name in FOREIGN]
    for file, make in zip(files, FOREIGN.values(), strict=True):
        onnx.save(make(), file)
    run("predict", *files, "--objectives", "accuracy,flops,params", "--out", folder / "p.csv")
    return read_csv(folder / "p.csv")


def programs_command(_: str, folder: Path) -> Any:
    """rank of programs by memory and predict of kernels, whose spaces the command finds itself."""
    files: dict[str, list[Path]] = {"memory": [], "latency": []}
    for kind, (suffix, _space, objectives, texts) in PROGRAMS.items():
        for i, text in enumerate(texts):
            file = folder / f"{kind}-{i}{suffix}"
            file.write_text(text)
            files[objectives[0]].append(file)
    run("rank", *files["memory"], "--by", "memory", "--quantiles", ".1,.9", "--out", folder / "r.csv")
    run("predict", *files["latency"], "--objectives", "latency", "--out", folder / "p.csv")
    return {"memory": read_csv(folder / "r.csv"), "latency": read_csv(folder / "p.csv")}


def search(algorithm: str, folder: Path) -> Any:
    """The log and the front of a small search."""
    constraint = ("--constraint", "latency/eyeriss@0.9<=6.5") if algorithm in ("nsga2", "local") else ()
    options = {
        "--space": "nasbench201",
        "--objectives": "accuracy,latency/pixel3",
        "--model": "nas-fast",
        "--algorithm": algorithm,
        "--population": POPULATION,
        "--generations": GENERATIONS,
        "--seed": 3,
        "--sample": 20 if algorithm == "nsga2" else 0,
        "--out": folder / "search",
    }
    run("search", *(part for option in options.items() for part in option), *constraint)
    lines = (folder / "search" / "log.jsonl").read_text().splitlines()
    generations: dict[int, Any] = {}
    for line in map(json.loads, lines):
        one = generations.setdefault(line["generation"], {"architectures": [], "quantiles": []})
        one["architectures"].append(line["arch"])
        one["quantiles"].append(list(line["predicted"].values()))
        objectives = list(line["predicted"])
    return {
        "objectives": objectives,
        "generations": list(generations.values()),
        "front": read_csv(folder / "search" / "front.csv"),
    }


def finetune(rows: Sequence[Row], folder: Path, **options: str) -> RLM:
    """A model after `nas-rlm finetune`, which runs in a process of its own, away from what tests change."""
    write(folder / "rows.parquet", rows)
    parts = [p for name, value in options.items() for p in (f"--{name.replace('_', '-')}", value)]
    root = str(Path(nas_rlm.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "nas_rlm", "finetune", "--data", "rows.parquet", "--out", "tuned"]
    done = subprocess.run(
        [*command, *parts],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"{' '.join([*command, *parts])} failed: {done.stderr[-2000:]}")
    return RLM.load(folder / "tuned")


def training(rlm: RLM, before: str) -> dict[str, Any]:
    """How far tensors of the network moved, in order of size, how many did not, and the new tokens."""
    old, moved, new = model(before).network.state_dict(), [], 0.0
    for name, tensor in rlm.network.state_dict().items():
        count = len(old[name])
        moved.append((tensor[:count] - old[name]).double().norm().item())
        new += tensor[count:].double().norm().item()
    return {
        "distances": sorted(distance for distance in moved if distance),
        "unchanged": sum(not distance for distance in moved),
        "norm of new tokens": new,
    }


def tuned(space: str, folder: Path, objective: str, **options: str) -> Any:
    """Predictions after fine-tuning on the labels of a space: of its other networks and some of its own."""
    labels = inputs()["labels"][space]
    rows = [Row(space, a, {labels["objective"]: value}) for a, value in labels["rows"]]
    rlm = finetune(rows, folder, **options)
    some = [*inputs()["architectures"][space], *(a for a, _ in labels["rows"][:5])]
    return {
        "tuned": predictions(rlm, space, some, [objective]),
        "another space": predictions(
            rlm, "nasbench101", inputs()["architectures"]["nasbench101"], ["accuracy"]
        ),
        "training": training(rlm, options["model"]),
    }


def few_labels(_: str, folder: Path) -> Any:
    """Sixteen labels, too few to hold any out."""
    return tuned("nats_size", folder, "accuracy", objectives="accuracy", model="nas-fast", seed="1")


def new_objective(_: str, folder: Path) -> Any:
    """A new device with twelve measurements."""
    name = "latency/new-device"
    return tuned("nasbench201", folder, name, new_objective=name, model="nas")


def held_out(_: str, folder: Path) -> Any:
    """A new space with enough labels to hold a fifth out."""
    return tuned("snas", folder, "accuracy", objectives="accuracy", model="nas", learn="token")


def tuned_programs(_: str, folder: Path) -> Any:
    """Programs with made-up memory."""
    texts = [
        text for _, _, objectives, some in PROGRAMS.values() if objectives[0] == "memory" for text in some
    ]
    rows = [
        Row("python", "", {"memory": 4096.0 * (2 + i * 5 % 7)}, text.replace("100", str(100 + j)))
        for i, text in enumerate(texts)
        for j in range(2)
    ]
    rlm = finetune(rows, folder, objectives="memory", model="programs", learn="token")
    return {
        "tuned": text_predictions(rlm, "python", texts, ["memory"]),
        "training": training(rlm, "programs"),
    }


Case = Callable[[Path], Any]  # from an empty folder to what is recorded


def named(work: Callable[[str, Path], Any], names: Sequence[str]) -> dict[str, Case]:
    return {name: partial(work, name) for name in names}


CASES: Mapping[str, Mapping[str, Case]] = {
    "spaces": named(space_outputs, search_spaces.names()),
    "foreign": named(foreign_text, list(FOREIGN)),
    "predictions": {
        **named(network_predictions, MODELS[:3]),
        **named(program_predictions, MODELS[3:]),
    },
    "commands": {
        "predict": partial(predict_command, ""),
        "predict ONNX files": partial(onnx_command, ""),
        "programs": partial(programs_command, ""),
    },
    "searches": named(search, ALGORITHMS),
    "finetuning": {
        "few labels": partial(few_labels, ""),
        "new objective": partial(new_objective, ""),
        "held-out labels": partial(held_out, ""),
        "programs": partial(tuned_programs, ""),
    },
}


def output(part: str, name: str, folder: Path) -> Any:
    """What a case gives, as it is after it was written to JSON and read again."""
    torch.set_num_threads(1)
    return json.loads(json.dumps(CASES[part][name](folder)))


def recorded(part: str) -> dict[str, Any]:
    """What was recorded."""
    found: dict[str, Any] = json.loads((FOLDER / f"{part}.json").read_text())
    return found
