"""The run directory of a training: its recipe and its log."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from nas_rlm.files import write_text
from nas_rlm.training.recipe import FORMER_TABLE_KEYS, Recipe

RECIPE_FILE, LOG_FILE = "recipe.json", "log.jsonl"


class TrainingLog:
    """Losses and throughput since the last line of log.jsonl.

    Args:
        run_directory: directory of log.jsonl; None to write nothing.
    """

    def __init__(self, run_directory: Path | None) -> None:
        self.run_directory = run_directory
        self._reset()

    def _reset(self) -> None:
        self.start, self.num_tokens = time.perf_counter(), 0
        self.losses: list[float] = []

    def add(self, loss: float, num_tokens: int) -> None:
        """Add the loss and the number of tokens of a step."""
        self.losses.append(loss)
        self.num_tokens += num_tokens

    def write(self, step: int, **values: object) -> None:
        """Write a line with the mean loss and throughput since the last line, and other values."""
        if self.run_directory is not None:
            loss = round(float(np.mean(self.losses)), 5) if self.losses else None
            rate = round(self.num_tokens / (time.perf_counter() - self.start))
            line = {"step": step, "loss": loss, "tokens_per_second": rate, **values}
            with open(self.run_directory / LOG_FILE, "a") as file:
                file.write(json.dumps(line) + "\n")
        self._reset()


def claim_run_directory(run_directory: Path, recipe: Recipe, resume: bool) -> None:
    """Write the recipe into a run directory, or check that it holds the run to resume.

    Args:
        run_directory: the directory, which is created if it does not exist.
        recipe: recipe of the run.
        resume: the directory may hold a run of the same recipe.

    Raises:
        ValueError: the directory holds another run or other files.
    """
    path = run_directory / RECIPE_FILE
    text = json.dumps(recipe, default=vars, indent=1)
    if path.is_file():
        if not resume:
            raise ValueError(f"{run_directory} already holds a run: choose another directory, or resume it")
        if not _are_equal_recipes(path.read_text(), text):
            raise ValueError(
                f"{run_directory} holds a run of another recipe: resume it with the one in {RECIPE_FILE}"
            )
    elif run_directory.is_dir() and any(run_directory.iterdir()):
        raise ValueError(f"{run_directory} is not empty and holds no run: choose another directory")
    write_text(path, text)


def _are_equal_recipes(stored: str, text: str) -> bool:
    """Whether two JSON texts are the same recipe; the stored one may have former keys of tables."""
    for former, present in FORMER_TABLE_KEYS.items():
        stored = stored.replace(f'"{former}":', f'"{present}":')
    try:
        return bool(json.loads(stored) == json.loads(text))
    except ValueError:
        return False
