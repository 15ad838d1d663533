"""Programs ranked without a model: by length, by how deep loops are, by the programs they are like."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

import numpy as np

NEIGHBOURS = 10
AT_ONCE = 512  # programs that are asked about
SHARPNESS = 4  # power of the similarity by which a neighbour counts
_MARKS = re.compile(r"\b(?:for|while)\b|[{};]")
_QUIET = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_HEAD = re.compile(r"\bfor\s*\([^;{}]*;[^;{}]*;")  # the semicolons of a loop's head end nothing
_PYTHON = re.compile(r"^[ \t]*(?:for|while|if|def)\b[^\n]*:[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_LINE = re.compile(r"^([ \t]*)(?:((?:for|while)\b)|[^\s#])", re.MULTILINE)
_TOKEN = r"\w+|[^\w\s]"


def length(programs: Sequence[str]) -> np.ndarray:
    """Characters of each program: float64 [N]."""
    return np.array([len(text) for text in programs], dtype=float)


def loop_depth(programs: Sequence[str]) -> np.ndarray:
    r"""How many loops are within each other at most, in each program: float64 [N].

    >>> loop_depth(["for i in a:\n  while i: pass", "for(;;) { f(); } while (1) {}"]).tolist()
    [2.0, 1.0]

    Python is parsed, comprehensions count; of anything else braces tell, or, where it looks like Python of
    another version, indentation.
    """
    return np.array([_depth(text) for text in programs], dtype=float)


def neighbours(known: Sequence[str], values: np.ndarray, asked: Sequence[str]) -> np.ndarray:
    """The mean number, by logarithms, of the known programs with the most similar words and pairs of words.

    Args:
        known: M programs.
        values: what was measured of them, float64 [M].
        asked: N programs.

    Returns:
        float64 [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise ValueError("neighbours need scikit-learn: pip install 'nas-rlm[baselines]'") from None
    words = TfidfVectorizer(token_pattern=_TOKEN, ngram_range=(1, 2), sublinear_tf=True, lowercase=False)
    of_known, of_asked = words.fit_transform(known).T.tocsr(), words.transform(asked)
    count, logs = min(NEIGHBOURS, len(known)), np.log1p(values)
    found = []
    for start in range(0, len(asked), AT_ONCE):
        alike = (of_asked[start : start + AT_ONCE] @ of_known).toarray()
        nearest = np.argpartition(-alike, count - 1, axis=1)[:, :count]
        weights = np.take_along_axis(alike, nearest, axis=1) ** SHARPNESS + 1e-9
        found.append(np.expm1((weights * logs[nearest]).sum(1) / weights.sum(1)))
    return np.concatenate([np.empty(0), *found])


def _depth(text: str) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what strings escape
            return _in_python(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        if _PYTHON.search(text):
            return _by_indentation(text)
        return _in_braces(_HEAD.sub("for ", _QUIET.sub("", text)))


def _by_indentation(text: str) -> int:
    """Loops that are open when another one begins, in Python of another version."""
    found = 0
    open_at: list[int] = []
    for indent, mark in _LINE.findall(text):
        width = len(indent.expandtabs())
        open_at = [one for one in open_at if one < width]
        if mark:
            open_at.append(width)
            found = max(found, len(open_at))
    return found


def _in_python(node: ast.AST) -> int:
    found, stack = 0, [(node, 0)]
    while stack:
        one, depth = stack.pop()
        inner = [child for child in ast.iter_child_nodes(one) if isinstance(child, ast.comprehension)]
        depth += isinstance(one, ast.For | ast.AsyncFor | ast.While) + len(inner)
        found = max(found, depth)
        stack += [(child, depth) for child in ast.iter_child_nodes(one)]
    return found


def _in_braces(text: str) -> int:
    """Loops that are open when another one begins: each ends with its block, or with its one statement."""
    found, waiting = 0, 0
    blocks: list[int] = []  # loops that each open block ends
    for mark in _MARKS.findall(text):
        if mark == "{":
            blocks.append(waiting)
            waiting = 0
        elif mark == "}":
            if blocks:
                blocks.pop()
            waiting = 0
        elif mark == ";":
            waiting = 0
        else:
            waiting += 1
            found = max(found, sum(blocks) + waiting)
    return found
