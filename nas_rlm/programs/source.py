"""A user's programs: their text, and which of the known kinds of programs they are like."""

from __future__ import annotations

import re
from pathlib import Path

from nas_rlm.files import read_text

LANGUAGES = {".py": "Python", ".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++"}  # by suffix
MOST = 2**20  # bytes of a program
# What they are called in tables of one's own (`measure`), and in the paper's datasets.
KERNELS, SOLUTIONS, SCRIPTS = ("triton", "KBSS"), ("python", "APPS"), ("python", "CDSS/Python")
KERNEL = re.compile(r"^\s*@triton\.jit\b", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async )?(?:def|class) ", re.MULTILINE)
_INPUT = re.compile(r"\binput\s*\(|\bsys\.stdin\b|\bopen\s*\(\s*0\s*\)")


def is_program(path: Path) -> bool:
    """Whether a file's name says that it is a program that can be read."""
    return path.suffix.lower() in LANGUAGES


def read_program(path: Path) -> tuple[str, tuple[str, ...]]:
    """The text of a program, and the spaces whose programs are like it, those of one's own first.

    Triton kernels are like those of KBSS; Python that reads no input but has functions is like solutions of
    APPS, whose memory is what a call allocates; all else is like a judge's submissions, CDSS, whose memory is
    the process's.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no regular file, too large, empty, or no text.
    """
    text = source_of(path)
    return text, _spaces(text, LANGUAGES[path.suffix.lower()])


def source_of(path: Path) -> str:
    """The text of a program.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no regular file, too large, empty, or no text.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} is no regular file: expected a program")
    if path.is_file() and path.stat().st_size > MOST:
        raise ValueError(f"{path} is larger than {MOST:,} bytes: expected a program")
    text = read_text(path, "a program")
    if not text.strip():
        raise ValueError(f"{path} is empty: expected a program")
    return text


def _spaces(text: str, language: str) -> tuple[str, ...]:
    if language != "Python":
        return (f"CDSS/{language}",)
    if KERNEL.search(text):
        return KERNELS
    return SOLUTIONS if _DEFINITION.search(text) and not _INPUT.search(text) else SCRIPTS
