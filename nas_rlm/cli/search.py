"""search, plot: Pareto fronts and their pictures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import search_spaces
from nas_rlm.cli.app import Flag, Many, Names, Whole, app, load
from nas_rlm.files import check_target

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM


@app.command
def search(
    *,
    space: str,
    objectives: Names,
    out: Path,
    constraint: Many = (),
    model: str = "nas",
    algorithm: str = "nsga2",
    population: Whole = 50,
    generations: Whole = 20,
    seed: Whole = 0,
    resume: Flag = False,
) -> None:
    """Search a space for the architectures with the best predicted trade-offs.

    The folder receives front.csv (the front, best in the first objective first), front/ (an .onnx for each),
    pareto.png, log.jsonl (every evaluated architecture, in order), samples.json and settings.json.

    Args:
        space: the search space.
        objectives: what to optimise, such as accuracy,latency/pixel3: accuracies upwards, others downwards.
        out: a folder of this search alone.
        constraint: bounds such as 'latency/pixel3<=20'.
        model: a checkpoint folder, or the name of a shipped model.
        algorithm: nsga2 or random.
        population: architectures a generation.
        generations: rounds of evaluation.
        seed: of all random choices.
        resume: continue the search in the folder, or start it if there is none; the outcome is the same.
    """
    from nas_rlm import folder
    from nas_rlm.search import Settings
    from nas_rlm.search import search as run

    found = search_spaces.get(space)
    rlm = load(model)
    settings = Settings(
        found.name, objectives, constraint, algorithm, population, generations, seed, model=_fingerprint(rlm)
    )
    rlm.check(settings.predicted)
    if found.size and population > found.size:
        raise ValueError(f"--population is {population:,}, more than the {found.size:,} of {found.name}")
    log = folder.open_log(out, settings, resume)
    result = run(found, rlm, settings, log, progress=True)
    log.finish()
    evaluated = f"{len(result.architectures):,} architectures evaluated"
    if len(result.front) == 0:
        raise ValueError(f"{evaluated}, none within {' and '.join(constraint)}: loosen a constraint")
    folder.write_front(out, found, rlm, result)
    print(f"{evaluated}, {len(result.front)} on the front: {out / 'front.csv'}")
    print(f"picture: {out / 'pareto.png'}")


@app.command
def plot(folder: Path, *, out: Path | None = None) -> None:
    """Draw the picture of a search again, finished or not.

    Args:
        folder: of the search.
        out: the picture; pareto.png in the folder by default.
    """
    from nas_rlm import plots
    from nas_rlm.folder import read_result, read_samples

    target = out or folder / "pareto.png"
    if target.suffix not in plots.FORMATS:
        raise ValueError(f"{str(target)!r} is no picture: expected {', '.join(plots.FORMATS)}")
    check_target(target)
    result = read_result(folder)
    plots.save(plots.front_info(result, read_samples(folder, result)), target)
    print(f"picture: {target}")


def _fingerprint(rlm: RLM) -> str:
    digest = hashlib.sha256()
    tensors = dict(rlm.network.state_dict())
    for space, known in rlm.experts.items():
        tensors |= {f"{space}.{i}.{k}": t for i, one in enumerate(known) for k, t in one.tensors().items()}
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    digest.update(json.dumps(rlm.temperatures, sort_keys=True).encode())
    return digest.hexdigest()[:16]
