"""Programs ranked without a language model: by length, by depth of loops, and by similar programs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

import numpy as np

from nas_rlm.utils.extras import require

NUM_NEIGHBOURS = 10
BATCH_SIZE = 512  # programs whose similarities are computed at a time
SIMILARITY_POWER = 4  # power of the similarity that weights a neighbour
_BRACE_MARKS = re.compile(r"\b(?:for|while)\b|[{};]")
_COMMENTS_AND_STRINGS = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL
)
_FOR_HEADER = re.compile(r"\bfor\s*\([^;{}]*;[^;{}]*;")  # its semicolons end no statement
_PYTHON_BLOCK = re.compile(r"^[ \t]*(?:for|while|if|def)\b[^\n]*:[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_INDENTED_LINE = re.compile(r"^([ \t]*)(?:((?:for|while)\b)|[^\s#])", re.MULTILINE)
_TOKEN = r"\w+|[^\w\s]"


def program_length(programs: Sequence[str]) -> np.ndarray:
    """Return the number of characters of each program [N]."""
    return np.array([len(text) for text in programs], dtype=float)


def loop_depth(programs: Sequence[str]) -> np.ndarray:
    r"""Return the largest number of nested loops of each program [N].

    Examples:
        >>> loop_depth(["for i in a:\n  while i: pass", "for(;;) { f(); } while (1) {}"]).tolist()
        [2.0, 1.0]

    Python is parsed, and comprehensions count as loops. In other languages braces are counted, and
    indentation in Python of another version.
    """
    return np.array([_depth(text) for text in programs], dtype=float)


def neighbours(train_programs: Sequence[str], values: np.ndarray, test_programs: Sequence[str]) -> np.ndarray:
    """Return the weighted mean in logarithms over the most similar training programs.

    Similarity is the cosine of TF-IDF vectors of tokens and pairs of tokens.

    Args:
        train_programs: M programs.
        values: their measured values [M].
        test_programs: N programs.

    Returns:
        Predictions [N].

    Raises:
        ValueError: scikit-learn is not installed.
    """
    require("baselines", "the method neighbours")
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(token_pattern=_TOKEN, ngram_range=(1, 2), sublinear_tf=True, lowercase=False)
    train_vectors = vectorizer.fit_transform(train_programs).T.tocsr()
    test_vectors = vectorizer.transform(test_programs)
    count, logs = min(NUM_NEIGHBOURS, len(train_programs)), np.log1p(values)
    predictions = []
    for start in range(0, len(test_programs), BATCH_SIZE):
        similarity = (test_vectors[start : start + BATCH_SIZE] @ train_vectors).toarray()
        nearest = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        weights = np.take_along_axis(similarity, nearest, axis=1) ** SIMILARITY_POWER + 1e-9
        predictions.append(np.expm1((weights * logs[nearest]).sum(1) / weights.sum(1)))
    return np.concatenate([np.empty(0), *predictions])


def _depth(text: str) -> int:
    """The largest number of nested loops of a program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escape sequences
            return _depth_of_syntax_tree(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        if _PYTHON_BLOCK.search(text):
            return _depth_by_indentation(text)
        return _depth_by_braces(_FOR_HEADER.sub("for ", _COMMENTS_AND_STRINGS.sub("", text)))


def _depth_by_indentation(text: str) -> int:
    """The depth of loops in Python of another version."""
    max_depth = 0
    open_loops: list[int] = []  # their indentation
    for indent, loop in _INDENTED_LINE.findall(text):
        width = len(indent.expandtabs())
        open_loops = [loop_width for loop_width in open_loops if loop_width < width]
        if loop:
            open_loops.append(width)
            max_depth = max(max_depth, len(open_loops))
    return max_depth


def _depth_of_syntax_tree(root: ast.AST) -> int:
    """The depth of loops and comprehensions in Python."""
    max_depth, stack = 0, [(root, 0)]
    while stack:
        node, depth = stack.pop()
        children = list(ast.iter_child_nodes(node))
        depth += isinstance(node, ast.For | ast.AsyncFor | ast.While)
        depth += sum(isinstance(child, ast.comprehension) for child in children)
        max_depth = max(max_depth, depth)
        stack += [(child, depth) for child in children]
    return max_depth


def _depth_by_braces(text: str) -> int:
    """The depth of loops in C-like programs; a loop ends with its block or with its only statement."""
    max_depth, num_pending = 0, 0  # loops whose block or statement has not begun
    blocks: list[int] = []  # loops that end with each open block
    for mark in _BRACE_MARKS.findall(text):
        if mark == "{":
            blocks.append(num_pending)
            num_pending = 0
        elif mark == "}":
            if blocks:
                blocks.pop()
            num_pending = 0
        elif mark == ";":
            num_pending = 0
        else:
            num_pending += 1
            max_depth = max(max_depth, sum(blocks) + num_pending)
    return max_depth
