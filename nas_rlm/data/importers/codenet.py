"""Project CodeNet as published (Puri et al. 2021): memory of the accepted submissions in each language."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nas_rlm.data.omissions import Omissions, is_valid_target
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


def read_rows(path: Path, omissions: Omissions) -> list[Row]:
    """Read submissions of the spaces `CDSS/C`, `CDSS/C++` and `CDSS/Python`, with `memory` in bytes.

    Args:
        path: the directory Project_CodeNet, with metadata/p00000.csv and
            data/p00000/LANGUAGE/s000000000.EXT.
        omissions: counts the entries that are not valid.

    Raises:
        ValueError: the directory has no metadata.
    """
    files = sorted((path / "metadata").glob("p*.csv"))
    if not files:
        raise ValueError(
            "it has no metadata/p00000.csv with the memory of each submission: only the full data set has it"
        )
    submissions: dict[str, list[_Submission]] = {language: [] for language in LANGUAGES}
    for file in files:
        with omissions.skip(file.name):
            for language, submission in _read_accepted(file, omissions):
                submissions[language].append(submission)
    rng = np.random.default_rng(0)
    rows = []
    for language, accepted in submissions.items():
        for i in sorted(rng.permutation(len(accepted))[:MAX_SUBMISSIONS_PER_LANGUAGE]):
            with omissions.skip(accepted[i].identifier):
                if row := _read_row(path, language, accepted[i]):
                    rows.append(row)
    return rows


def _read_accepted(file: Path, omissions: Omissions) -> Iterator[tuple[str, _Submission]]:
    """Yield the accepted submissions to a problem that have a memory, with their language."""
    with open(file, newline="", encoding="utf-8", errors="replace") as opened:
        for number, record in enumerate(csv.DictReader(opened), 2):
            with omissions.skip(f"{file.name} line {number}"):
                if record["status"] == "Accepted" and record["language"] in LANGUAGES and record["memory"]:
                    submission = _parse_submission(record)
                    if submission.memory > 0:
                        yield record["language"], submission


def _parse_submission(record: Mapping[str, str]) -> _Submission:
    """Return the submission of a line of the metadata."""
    memory = float(record["memory"])
    problem, number, suffix = (record[k] for k in ("problem_id", "submission_id", "filename_ext"))
    if not (problem.isalnum() and number.isalnum() and suffix.isalnum()):
        raise ValueError(f"it names {problem}/{number}.{suffix}: expected p00000/s0.py")
    num_bytes = BYTES_PER_KIBIBYTE * memory
    if not is_valid_target("memory", num_bytes) or math.isnan(num_bytes):
        raise ValueError(f"the memory is {memory:g}: expected a number of KiB")
    return _Submission(problem, number, suffix, num_bytes)


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
