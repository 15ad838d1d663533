"""Accuracy and latency on CIFAR-10 in an equal time: a study, random search and Optuna's TPE.

    python results/recipes/cifar10_study.py cifar-10-batches-py runs/cifar10 --method study --minutes 120

Each trial is trained for an epoch on some of the images, tested on others, and measured with onnxruntime on
one thread. Time is that of the processor, from the first suggestion to the last result, with what each method
spends on its own computations: with one thread, it is wall-clock time without the share of other programs. In
the end the networks of the front are trained longer, on all training images, and tested on the test images.
The log OUT/SPACE-METHOD-SEED.jsonl has a line for each trial and each final network. The same command
continues it where it ends, and with more minutes the search goes on. `--summary` prints the hypervolumes of
all logs of a directory. `--measure-finals` first measures the final networks of all logs, into
OUT/final-latencies.json: logs that were continued on another machine have latencies of both.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from cifar10_networks import SPACES, Data, accuracy, load_data, train

from nas_rlm import Study
from nas_rlm.files import read_text, write_text
from nas_rlm.graph.torch_module import to_torch
from nas_rlm.search.pareto import hypervolume, nondominated
from nas_rlm.study.free_values import measured_values
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import COMPLETE
from nas_rlm.utils.json_lines import append_records, read_lines
from search_spaces import SearchSpace

DEVICE = "onnxruntime-cpu-1t"
ACCURACY, LATENCY = OBJECTIVES = "accuracy", f"latency/{DEVICE}"
METHODS = "study", "random", "tpe"
SHARES_OF_TIME = 0.25, 0.5, 1
TRIAL, FAILED, FINAL = "trial", "failed", "final"
FINAL_LATENCIES = "final-latencies.json"  # by space and architecture


@dataclass(frozen=True)
class Plan:
    """How long a run takes.

    Args:
        minutes: processor time of the search.
        images: training images of a trial.
        final_epochs: epochs of the networks of the front.
        max_front: at most as many of them, evenly spaced along the front.
    """

    minutes: float
    images: int
    final_epochs: int
    max_front: int


class Evaluator:
    """Trains and measures architectures.

    Args:
        space: their space.
        data: the images.
        num_images: training images of a trial.
        seed: seed of the measurements.
    """

    def __init__(self, space: SearchSpace[Any], data: Data, num_images: int, seed: int) -> None:
        self.space, self.data, self.num_images = space, data, num_images
        self.settings = StudySettings(space.name, OBJECTIVES, device=DEVICE, seed=seed)

    def accuracy(self, architecture: Any, seed: int) -> float:
        """Return the validation accuracy after an epoch, in percent."""
        network = self.network(architecture, seed)
        images, labels = self.data.train
        train(network, images[: self.num_images], labels[: self.num_images], epochs=1)
        return accuracy(network, *self.data.validation)

    def test_accuracy(self, architecture: Any, seed: int, epochs: int) -> float:
        """Return the test accuracy after a training on all training images, in percent."""
        network = self.network(architecture, seed)
        images, labels = (torch.cat(pair) for pair in zip(self.data.train, self.data.validation, strict=True))
        train(network, images, labels, epochs)
        return accuracy(network, *self.data.test)

    def network(self, architecture: Any, seed: int) -> torch.nn.Module:
        """Return the network with initial weights."""
        torch.manual_seed(seed)
        return to_torch(self.space.to_onnx(architecture, weights=True, seed=seed))

    def values(self, architecture: Any, seed: int) -> dict[str, float]:
        """Return the accuracy and the latency in ms; nothing if the device cannot measure the network."""
        try:
            measured, _ = measured_values(self.space, architecture, self.settings)
        except ValueError:
            return {}
        return {ACCURACY: self.accuracy(architecture, seed), **measured}


class Method(Protocol):
    """Suggests architectures and evaluates them."""

    def add(self, architecture: Any, values: Mapping[str, float]) -> None:
        """Add a trial of the log: its architecture and its values, none if it failed."""

    def next(self, number: int) -> tuple[Any, Mapping[str, float]]:
        """Return the next architecture and its values, none if it failed.

        Args:
            number: number of trials before.
        """


class ByStudy:
    """A `Study`."""

    def __init__(self, evaluator: Evaluator, seed: int) -> None:
        self.evaluator = evaluator
        self.directory = tempfile.TemporaryDirectory()
        path = Path(self.directory.name) / "study"
        self.study = Study(evaluator.space, OBJECTIVES, path, device=DEVICE, seed=seed)

    def add(self, architecture: Any, values: Mapping[str, float]) -> None:
        if values:
            self.study.add(architecture, values)

    def next(self, number: int) -> tuple[Any, Mapping[str, float]]:
        trial = self.study.ask()
        self.study.tell(trial, self.evaluator.accuracy(trial.parsed, trial.seed))
        return trial.parsed, trial.values if trial.state == COMPLETE else {}


class ByRandom:
    """Random architectures, none twice."""

    def __init__(self, evaluator: Evaluator, seed: int) -> None:
        self.evaluator, self.seed, self.rng = evaluator, seed, np.random.default_rng(seed)
        self.order: dict[str, Any] = {}

    def add(self, architecture: Any, values: Mapping[str, float]) -> None:
        """The same architectures are drawn again, whatever their values are."""

    def next(self, number: int) -> tuple[Any, Mapping[str, float]]:
        while len(self.order) <= number:
            architecture = self.evaluator.space.sample(self.rng)
            self.order.setdefault(str(architecture), architecture)
        architecture = [*self.order.values()][number]
        return architecture, self.evaluator.values(architecture, trial_seed(self.seed, number))


class ByTPE:
    """Optuna's multivariate TPE on genomes."""

    def __init__(self, evaluator: Evaluator, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self.evaluator, self.seed = evaluator, seed
        self.study = optuna.create_study(directions=["maximize", "minimize"])
        self.choices = {
            f"gene{i}": optuna.distributions.CategoricalDistribution(range(size))
            for i, size in enumerate(evaluator.space.genes)
        }

    def add(self, architecture: Any, values: Mapping[str, float]) -> None:
        from optuna.trial import TrialState, create_trial

        genome = self.evaluator.space.encode(architecture).tolist()
        trial = create_trial(
            state=TrialState.COMPLETE if values else TrialState.FAIL,
            params=dict(zip(self.choices, genome, strict=True)),
            distributions=self.choices,
            values=[values[name] for name in OBJECTIVES] if values else None,
        )
        self.study.add_trial(trial)

    def next(self, number: int) -> tuple[Any, Mapping[str, float]]:
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        self.study.sampler = TPESampler(multivariate=True, seed=trial_seed(self.seed, number))
        trial = self.study.ask(self.choices)
        architecture = self.evaluator.space.decode(np.array([*trial.params.values()]))
        values = self.evaluator.values(architecture, trial_seed(self.seed, number))
        if values:
            self.study.tell(trial, [values[name] for name in OBJECTIVES])
        else:
            self.study.tell(trial, state=TrialState.FAIL)
        return architecture, values


CLASSES = dict(zip(METHODS, (ByStudy, ByRandom, ByTPE), strict=True))


def processor_seconds() -> float:
    """Return the processor time that this process and its ended children have taken."""
    return sum(os.times()[:4])


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of a trial."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def run(method: str, space: str, data: Data, out: Path, seed: int, plan: Plan) -> None:
    """Search, and train the front; see the head of this file.

    Args:
        method: one of `METHODS`.
        space: one of `SPACES`.
        data: the images.
        out: directory of the logs.
        seed: seed of the run.
        plan: how long it takes.
    """
    log = out / f"{space}-{method}-{seed}.jsonl"
    description = {"space": space, "method": method, "seed": seed, "images": plan.images}
    out.mkdir(parents=True, exist_ok=True)
    records = read_log(log, description)
    evaluator = Evaluator(SPACES[space](), data, plan.images, seed)
    trials = [r for r in records if r["kind"] in (TRIAL, FAILED)]
    earlier = trials[-1]["seconds"] if trials else 0.0
    chosen: Method = CLASSES[method](evaluator, seed)
    for record in trials:
        values = {name: record[name] for name in OBJECTIVES if name in record}
        chosen.add(evaluator.space.parse(record["architecture"]), values)
    start = processor_seconds() - earlier
    while earlier < 60 * plan.minutes:
        architecture, values = chosen.next(len(trials))
        earlier = processor_seconds() - start
        kind = TRIAL if values else FAILED
        record = {"kind": kind, "seconds": round(earlier, 2), "architecture": str(architecture), **values}
        append_records(log, [description | record])
        trials.append(record)
        print(f"{earlier:6.0f} s  {architecture}  {described(values)}", flush=True)
    description |= {"minutes": plan.minutes, "epochs": plan.final_epochs}
    finished = {r["architecture"] for r in records if description.items() <= r.items()}
    for record in spaced(front_of(in_time(trials, plan.minutes)), plan.max_front):
        if record["architecture"] not in finished:
            architecture = evaluator.space.parse(record["architecture"])
            tested = evaluator.test_accuracy(architecture, trial_seed(seed, 0), plan.final_epochs)
            final = {"kind": FINAL, "architecture": record["architecture"], "test_accuracy": tested}
            append_records(log, [description | final | {LATENCY: record[LATENCY]}])
            described_values = described({ACCURACY: tested, LATENCY: record[LATENCY]})
            print(f"   final  {record['architecture']}  {described_values}", flush=True)


def described(values: Mapping[str, float]) -> str:
    """Return values as text."""
    return f"{values[ACCURACY]:.1f} %  {values[LATENCY]:.2f} ms" if values else "failed"


def read_log(path: Path, description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a log.

    Raises:
        ValueError: it is of a run with other arguments.
    """
    records = [json.loads(line) for line in read_lines(path)[0]]
    for record in records:
        if different := [key for key, value in description.items() if record.get(key) != value]:
            raise ValueError(f"{path} is of a run with another {different[0]}: choose another directory")
    return records


def in_time(trials: Sequence[Mapping[str, Any]], minutes: float) -> list[Mapping[str, Any]]:
    """Return the trials that did not fail and ended in time."""
    return [t for t in trials if t["kind"] == TRIAL and t["seconds"] <= 60 * minutes]


def front_of(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the trials on the Pareto front, the fastest network first."""
    values = np.array([[trial[name] for name in OBJECTIVES] for trial in trials]).reshape(-1, 2)
    rows = np.flatnonzero(nondominated(values, OBJECTIVES))
    return sorted((trials[i] for i in rows), key=lambda trial: trial[LATENCY])


def averaged(trials: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return the mean accuracy and latency of each architecture.

    A method that evaluates one again would else count with the best of several initial weights.
    """
    by_architecture: dict[str, list[tuple[float, float]]] = {}
    for trial in trials:
        by_architecture.setdefault(trial["architecture"], []).append((trial[ACCURACY], trial[LATENCY]))
    return [tuple(np.mean(values, axis=0).tolist()) for values in by_architecture.values()]


def relative_hypervolume(points: Sequence[tuple[float, float]], longest: float) -> float:
    """Return the hypervolume of accuracies and latencies, relative to that of an ideal network."""
    values = np.array(points).reshape(-1, 2)
    return hypervolume(values, OBJECTIVES, (10.0, longest)) / (90 * longest)


def spaced(front: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """Return at most as many trials of a front, evenly spaced and with its ends."""
    positions = np.linspace(0, len(front) - 1, min(count, len(front))).round().astype(int)
    return [front[i] for i in positions]


def measure_finals(out: Path) -> None:
    """Measure the latency of the final networks of all logs, one after the other, see the head of this file.

    Args:
        out: directory of the logs.
    """
    latencies: dict[str, dict[str, float]] = {}
    spaces = {name: space() for name, space in SPACES.items()}
    for path in sorted(out.glob("*.jsonl")):
        for record in (json.loads(line) for line in read_lines(path)[0]):
            name, architecture = record["space"], record["architecture"]
            found = latencies.setdefault(name, {})
            if record["kind"] == FINAL and architecture not in found:
                space, settings = spaces[name], StudySettings(name, OBJECTIVES, device=DEVICE)
                measured, _ = measured_values(space, space.parse(architecture), settings)
                found[architecture] = measured[LATENCY]
    write_text(out / FINAL_LATENCIES, json.dumps(latencies, indent=1) + "\n")


def summary(out: Path, minutes: float) -> None:
    """Print for each log the hypervolume of its trials after parts of the time, and of its final networks.

    The reference point is the accuracy of guessing, and the longest latency of all logs. An architecture
    with several trials counts with its means. Final networks have the latencies of `measure_finals` where
    these were measured.

    Args:
        out: directory of the logs.
        minutes: processor time of the search.
    """
    logs = {
        path.stem: [json.loads(line) for line in read_lines(path)[0]] for path in sorted(out.glob("*.jsonl"))
    }
    again = out / FINAL_LATENCIES
    measured = json.loads(read_text(again, "latencies of final networks")) if again.is_file() else {}
    for space in SPACES:
        of_space = {name: records for name, records in logs.items() if name.startswith(f"{space}-")}
        longest = max(
            (r[LATENCY] for records in of_space.values() for r in records if LATENCY in r), default=0.0
        )
        for name, records in of_space.items():
            searched = [r for r in records if r["kind"] != FINAL]
            parts = [in_time(searched, minutes * share) for share in SHARES_OF_TIME]
            finals = [r for r in records if r["kind"] == FINAL and r["minutes"] == minutes]
            own = measured.get(space, {})
            final = [(r["test_accuracy"], own.get(r["architecture"], r[LATENCY])) for r in finals]
            after = [relative_hypervolume(averaged(part), longest) for part in parts]
            tested = relative_hypervolume(final, longest)
            described_parts = ", ".join(
                f"{value:.4f} after {minutes * share:g} minutes"
                for share, value in zip(SHARES_OF_TIME, after, strict=True)
            )
            best = max((a for a, _ in final), default=float("nan"))
            print(
                f"{name}: {len(parts[-1])} trials of {len(averaged(parts[-1]))} networks, hypervolume"
                f" {described_parts}; {len(final)} networks of the front tested, hypervolume {tested:.4f},"
                f" best accuracy {best:.2f} %"
            )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="directory cifar-10-batches-py")
    parser.add_argument("out", type=Path, help="directory of the logs")
    parser.add_argument("--method", choices=METHODS, default=METHODS[0])
    parser.add_argument("--space", choices=tuple(SPACES), default="mobilenets")
    parser.add_argument("--minutes", type=float, default=120, help="processor time of the search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=4000, help="training images of a trial")
    parser.add_argument("--final-epochs", type=int, default=10, help="epochs of the networks of the front")
    parser.add_argument("--max-front", type=int, default=8, help="networks of the front that are tested")
    parser.add_argument("--measure-finals", action="store_true", help="measure them, and print the results")
    parser.add_argument("--summary", action="store_true", help="only print the results of all logs")
    options = parser.parse_args()
    if options.measure_finals:
        measure_finals(options.out)
    elif not options.summary:
        torch.set_num_threads(1)
        plan = Plan(options.minutes, options.images, options.final_epochs, options.max_front)
        data = load_data(options.data)
        run(options.method, options.space, data, options.out, options.seed, plan)
    summary(options.out, options.minutes)


if __name__ == "__main__":
    main()
