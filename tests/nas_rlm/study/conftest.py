from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas_rlm import RLM, Study
from nas_rlm.data import Row
from nas_rlm.study.records import Suggestion, Suggestions
from nas_rlm.study.suggestion import PoolSuggester
from tests.nas_rlm.stubs import CELLS

MINE = """
import os, signal, sys, time, torch

def train(trial):
    print("training", trial.architecture)
    print("threads", os.environ["OMP_NUM_THREADS"], file=sys.stderr)
    trial.report(0, 40.0)
    trial.report(1, {"accuracy": 50.0 + trial.number})
    (trial.directory / "checkpoint").write_text("here")
    if trial.number == 1:
        raise RuntimeError("CUDA out of memory")
    if trial.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return None, {"weight": torch.full((2,), float(trial.number))}

def slow(trial):
    time.sleep(300)

def chatty(trial):
    print("x" * 100_000, end="")
    print("the end" if sys.stdin.read() == "" else "input", flush=True)
    os._exit(3)

def once(trial):
    marker = trial.directory / "tried"
    if not marker.exists():
        marker.touch()
        sys.exit("no luck")
    return 70.0
"""


PAIR = ("accuracy", "flops")


@pytest.fixture(scope="session")
def tiny_rlm(tiny_checkpoint: Path) -> RLM:
    """Return the untrained model."""
    return RLM.load(tiny_checkpoint)


def suggest_randomly(
    self: PoolSuggester,
    rows: Sequence[Row],
    pending: Sequence[str],
    count: int,
    candidates: Sequence[str] = (),
) -> Suggestions:
    """Suggest random new cells without surrogates, in place of `PoolSuggester.suggest`.

    They depend on all rows, pending cells, earlier candidates and the seed. In a study with budgets, the
    first of two paused cells is continued.
    """
    state = [round(100 * sum(row.targets.values())) for row in rows]
    rng = np.random.default_rng([self.settings.seed, len(pending), len(candidates), *state])
    num_values = {row.arch_str: len(row.targets) for row in rows}
    paused = [n for n, k in num_values.items() if 0 < k < len(self.settings.budgets) and n not in pending]
    if len(paused) > 1:
        return Suggestions([Suggestion(paused[0])], [f"candidate {len(candidates)}"])
    known = {*pending, *(row.arch_str for row in rows)}
    names: list[str] = []
    while len(names) < count:
        name = str(self.space.sample(rng))
        if name not in known:
            names.append(name)
            known.add(name)
    return Suggestions([Suggestion(name) for name in names], [f"candidate {len(candidates)}"])


@pytest.fixture
def quick_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suggest random new cells without surrogates."""
    monkeypatch.setattr(PoolSuggester, "suggest", suggest_randomly)


@pytest.fixture
def open_study(tiny_rlm: RLM, tmp_path: Path, quick_suggestions: None) -> Callable[..., Study]:
    """Return a function that opens a study with quick suggestions in a directory of the test."""

    def open_(name: str = "study", objectives: Sequence[str] = PAIR, **options: Any) -> Study:
        return Study(CELLS, objectives, tmp_path / name, model=tiny_rlm, **options)

    return open_


def accuracy(trial: Any) -> dict[str, float]:
    """A made-up accuracy of a cell."""
    name = str(getattr(trial, "architecture", trial))
    return {"accuracy": 50.0 + 5 * name.count("conv") + name.count("3x3") + name.index("~") / 10}


def summary(study):
    """What must not depend on interruptions."""
    return [
        (t.number, t.architecture, t.seed, t.state, t.values, t.steps, t.error, t.budget_values)
        for t in study.trials
    ]


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path
