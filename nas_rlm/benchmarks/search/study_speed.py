"""Seconds that a study takes to suggest an architecture."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nas_rlm.benchmarks.timing import Cases, time_cases
from nas_rlm.data.synthetic import distinct_architectures
from nas_rlm.rlm import RLM
from nas_rlm.study.study import Study

SPACE = "nasbench201"
OBJECTIVES = ("accuracy", "latency/pixel3")


def time_suggestions(rlm: RLM, num_trials: int, runs: int, seed: int = 0) -> Cases:
    """Time `Study.ask` and `tell` for one and two objectives of NAS-Bench-201, after a number of trials.

    The values of trials are made up from costs. The untimed first run of each case fits the surrogates.

    Args:
        rlm: the model, whose surrogates are sources of transfer.
        num_trials: trials that are complete before.
        runs: number of timed runs, each of one trial.
        seed: seed of the studies.
    """

    def ask_and_tell(study: Study, _: int) -> int:
        trial = study.ask()
        study.tell(trial, _made_up_values(study, trial.architecture))
        return 1

    with TemporaryDirectory() as directory:
        cases = {}
        for objectives in (OBJECTIVES[:1], OBJECTIVES):
            study = Study(SPACE, objectives, Path(directory) / str(len(objectives)), model=rlm, seed=seed)
            for name in distinct_architectures(study.space, num_trials, seed):
                study.add(name, _made_up_values(study, name))
            cases[f"ask, {num_trials} trials, {len(objectives)} objectives"] = partial(ask_and_tell, study)
        yield from time_cases(cases, runs)


def _made_up_values(study: Study, name: str) -> dict[str, float]:
    """An accuracy and a latency that follow from the costs of an architecture."""
    architecture = study.space.parse(name)
    params, flops = study.space.params(architecture), study.space.flops(architecture)
    values = 90 - 50 / np.log2(params), 1 + flops / 1e7
    return dict(zip(OBJECTIVES[: len(study.settings.objectives)], values, strict=False))
