"""Project CodeNet as published (Puri et al. 2021): memory of the accepted submissions in each language."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nas_rlm.data.tables import Row

MAX_SUBMISSIONS_PER_LANGUAGE = 10_000  # drawn at random from millions
LANGUAGES = ("C", "C++", "Python")  # the languages of `nas_rlm.programs.source`
BYTES_PER_KIBIBYTE = 1024
MAX_SOURCE_BYTES = 2**20


class _Submission(NamedTuple):
    """An accepted submission, with its memory in bytes."""

    problem: str
    identifier: str
    suffix: str
    memory: float


def read_rows(path: Path) -> list[Row]:
    """Read submissions of the spaces `CDSS/C`, `CDSS/C++` and `CDSS/Python`, with `memory` in bytes.

    Args:
        path: the directory Project_CodeNet, with metadata/p00000.csv and
            data/p00000/LANGUAGE/s000000000.EXT.
    """
    submissions: dict[str, list[_Submission]] = {language: [] for language in LANGUAGES}
    for file in sorted((path / "metadata").glob("p*.csv")):
        for language, submission in _read_accepted(file):
            submissions[language].append(submission)
    rng = np.random.default_rng(0)
    rows = []
    for language, accepted in submissions.items():
        drawn = sorted(rng.permutation(len(accepted))[:MAX_SUBMISSIONS_PER_LANGUAGE])
        rows += [row for i in drawn if (row := _read_row(path, language, accepted[i]))]
    return rows


def _read_accepted(file: Path) -> Iterator[tuple[str, _Submission]]:
    """Yield the accepted submissions to a problem that have a memory, with their language."""
    with open(file, newline="", encoding="utf-8") as opened:
        for record in csv.DictReader(opened):
            language, memory = record["language"], record["memory"]
            if record["status"] == "Accepted" and language in LANGUAGES and memory and float(memory) > 0:
                problem, number, suffix = (record[k] for k in ("problem_id", "submission_id", "filename_ext"))
                if not (problem.isalnum() and number.isalnum() and suffix.isalnum()):
                    raise ValueError(f"{file.name} names {problem}/{number}.{suffix}: expected p00000/s0.py")
                yield language, _Submission(problem, number, suffix, BYTES_PER_KIBIBYTE * float(memory))


def _read_row(path: Path, language: str, submission: _Submission) -> Row | None:
    """Return the row of a submission, or None where its source is empty, not text or too long."""
    problem, identifier, suffix, memory = submission
    file = path / "data" / problem / language / f"{identifier}.{suffix}"
    if file.stat().st_size > MAX_SOURCE_BYTES:
        return None
    try:
        source = file.read_text("utf-8")
    except UnicodeDecodeError:
        return None
    if not source.strip():
        return None
    return Row(f"CDSS/{language}", "", {"memory": memory}, source, identifier, group=problem)
