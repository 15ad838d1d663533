"""Seconds that a study takes to suggest an architecture."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nas_rlm.benchmarks.timing import Cases, time_cases
from nas_rlm.rlm import RLM
from nas_rlm.study.study import Study

SPACE = "nasbench201"
OBJECTIVES = ("accuracy", "latency/pixel3")


def time_suggestions(rlm: RLM, num_trials: int, runs: int, seed: int = 0) -> Cases:
    """Time `Study.ask` and `tell` for one and two objectives of NAS-Bench-201, after a number of trials.

    The values of trials are predictions of the model. The untimed first run of each case fits the surrogates.

    Args:
        rlm: the model.
        num_trials: trials that are complete before.
        runs: number of timed runs, each of one trial.
        seed: seed of the studies.
    """

    def ask_and_tell(study: Study, _: int) -> int:
        trial = study.ask()
        study.tell(trial, predicted_values(study, [trial.architecture])[0])
        return 1

    def predicted_values(study: Study, architectures: list[str]) -> list[dict[str, float]]:
        names = study.settings.objectives
        values = rlm.predict(study.space, architectures, names)
        return [dict(zip(names, row, strict=True)) for row in values.tolist()]

    with TemporaryDirectory() as directory:
        cases = {}
        for objectives in (OBJECTIVES[:1], OBJECTIVES):
            study = Study(SPACE, objectives, Path(directory) / str(len(objectives)), model=rlm, seed=seed)
            labelled = _random_architectures(study, num_trials)
            for name, values in zip(labelled, predicted_values(study, labelled), strict=True):
                study.add(name, values)
            cases[f"ask, {num_trials} trials, {len(objectives)} objectives"] = partial(ask_and_tell, study)
        yield from time_cases(cases, runs)


def _random_architectures(study: Study, count: int) -> list[str]:
    """Return distinct random architectures of the space of a study."""
    rng = np.random.default_rng(study.settings.seed)
    names: dict[str, None] = {}
    while len(names) < count:
        names[str(study.space.sample(rng))] = None
    return list(names)
