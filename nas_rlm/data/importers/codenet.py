"""Project CodeNet as it is published: memory of the accepted submissions of each language."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nas_rlm.data.tables import Row

MOST = 10_000  # submissions of a language, drawn at random: there are millions
LANGUAGES = ("C", "C++", "Python")  # those that nas_rlm.programs.source tells apart
KIBIBYTE = 1024
LARGEST = 2**20  # bytes of a submission

Submission = tuple[str, str, str, float]  # problem, number, suffix, memory in bytes


def rows(path: Path) -> list[Row]:
    """Rows of the spaces `CDSS/C`, `CDSS/C++` and `CDSS/Python`, with `memory` in bytes.

    Args:
        path: the folder Project_CodeNet, with metadata/p00000.csv and data/p00000/LANGUAGE/s000000000.EXT.
    """
    accepted: dict[str, list[Submission]] = {language: [] for language in LANGUAGES}
    for file in sorted((path / "metadata").glob("p*.csv")):
        for language, one in _accepted(file):
            accepted[language].append(one)
    rng = np.random.default_rng(0)
    found = []
    for language, submissions in accepted.items():
        drawn = sorted(rng.permutation(len(submissions))[:MOST])
        found += [row for i in drawn if (row := _row(path, language, submissions[i]))]
    return found


def _accepted(file: Path) -> Iterator[tuple[str, Submission]]:
    """Of a problem's metadata the accepted submissions with a memory, in the languages that count."""
    with open(file, newline="", encoding="utf-8") as opened:
        for record in csv.DictReader(opened):
            language, memory = record["language"], record["memory"]
            if record["status"] == "Accepted" and language in LANGUAGES and memory and float(memory) > 0:
                problem, number, suffix = (record[k] for k in ("problem_id", "submission_id", "filename_ext"))
                if not (problem.isalnum() and number.isalnum() and suffix.isalnum()):
                    raise ValueError(f"{file.name} names {problem}/{number}.{suffix}: expected p00000/s0.py")
                yield language, (problem, number, suffix, KIBIBYTE * float(memory))


def _row(path: Path, language: str, submission: Submission) -> Row | None:
    """A submission with its source, unless that is empty, no text or too long."""
    problem, number, suffix, memory = submission
    source = path / "data" / problem / language / f"{number}.{suffix}"
    if source.stat().st_size > LARGEST:
        return None
    try:
        text = source.read_text("utf-8")
    except UnicodeDecodeError:
        return None
    if not text.strip():
        return None
    return Row(f"CDSS/{language}", "", {"memory": memory}, text, number, group=problem)
