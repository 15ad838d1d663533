"""Source files of programs: how they are read, and which spaces of the paper's programs they resemble."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path

from nas_rlm.data.rows import KERNEL_SPACES
from nas_rlm.files import read_text
from nas_rlm.programs.languages import LANGUAGES, language_of_file

MAX_SOURCE_BYTES = 2**20
NOTEBOOK_SUFFIX = ".ipynb"
# The space in the tables that `nas-rlm measure` writes, and that of the published datasets.
SOLUTION_SPACES = ("python", "APPS")
SCRIPT_SPACES = ("python", "CDSS/Python")
JUDGE_SPACE, SUBMISSION_SPACE = "LeetCode/{}", "CDSS/{}"  # of functions for a judge, and of whole programs
TRITON_KERNEL = re.compile(r"^\s*@triton\.jit\b", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async )?(?:def|class) ", re.MULTILINE)
_READS_INPUT = re.compile(r"\binput\s*\(|\bsys\.stdin\b|\bopen\s*\(\s*0\s*\)")
# What starts a program that is no function for a judge, in the languages other than Python.
_ENTRY_POINT = re.compile(
    r"\b(?:int|void|auto|signed|fun|func|fn|def) main\b|\bvoid Main\s*\(|\bstatic void main\b|\bextends App\b"
    r"|\bSTDIN\b|\bprocess\.stdin\b|\bgets\b|\breadLine\(|\breadline\(|\bmain\([^\n]*\) ->"
)


def is_program(path: Path) -> bool:
    """Return whether a file is a program, see `nas_rlm.programs.languages.language_of_file`.

    Raises:
        ValueError: the file is a notebook, or text of which neither its ending nor its source says in which
            language.
    """
    check_no_notebook(path)
    return bool(language_of_file(path))


def read_program(path: Path) -> tuple[str, tuple[str, ...]]:
    """Read a program, and select the spaces of similar programs in the paper's tables.

    Triton kernels are similar to those of KBSS. Python that defines functions and reads no input is similar
    to the solutions of APPS, whose memory is that of a call. A program that starts by itself is similar to
    the submissions of CDSS, whose memory is that of the process. A class or function without an entry point
    is similar to the solutions of LeetCode in its language, whose memory and time are those of the judge.

    Args:
        path: the source file.

    Returns:
        The source, and the names of the spaces, the one of tables measured here first.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a regular file, too large, empty, a notebook or not text.
    """
    source = read_source(path)
    return source, _similar_spaces(source, language_of_file(path))


def read_source(path: Path) -> str:
    """Read the source of a program.

    Args:
        path: the source file, in UTF-8.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a regular file, too large, empty, a notebook or not text.
    """
    check_no_notebook(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} is not a regular file: expected a program")
    if path.is_file() and path.stat().st_size > MAX_SOURCE_BYTES:
        raise ValueError(f"{path} is larger than {MAX_SOURCE_BYTES:,} bytes: expected a program")
    source = read_text(path, "a program")
    if not source.strip():
        raise ValueError(f"{path} is empty: expected a program")
    if "\0" in source:
        raise ValueError(f"{path} is not text, since it has NUL characters: expected a program")
    return source


def check_no_notebook(path: Path) -> None:
    """Refuse notebooks, whose JSON may even be an expression in Python.

    Raises:
        ValueError: the ending of the file is that of a notebook.
    """
    if path.suffix.lower() == NOTEBOOK_SUFFIX:
        raise ValueError(f"{path} is a notebook: expected its code as a program, such as {path.stem}.py")


def read_python(path: Path) -> str:
    """Read the source of a Python program.

    Args:
        path: the source file, in UTF-8; its ending may be missing.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: its ending is that of another language; or see `read_source`.
    """
    language = LANGUAGES.get(path.suffix.lower(), "Python")
    if language != "Python":
        raise ValueError(f"{path} is in {language}: expected a program in Python")
    return read_source(path)


def language_of_space(space: str) -> str:
    """Return the language of the programs of a space; empty if it is not known.

    Examples:
        >>> language_of_space("LeetCode/Java"), language_of_space("APPS"), language_of_space("nasbench201")
        ('Java', 'Python', '')

    Args:
        space: name of the space.
    """
    language = space.rpartition("/")[2]
    if language in LANGUAGES.values():
        return language
    return "Python" if space in (*KERNEL_SPACES, *SOLUTION_SPACES) else ""


def python_error(source: str) -> str:
    """Return why a source is not a program in Python 3; empty if it is one.

    Examples:
        >>> python_error("x = 1"), python_error("x = ("), python_error("# nothing")
        ('', "line 1: '(' was never closed", 'it has no statement')

    Args:
        source: the source.
    """
    tree, error = _parsed(source)
    return error if error or (tree and tree.body) else "it has no statement"


def _parsed(source: str) -> tuple[ast.Module | None, str]:
    """Return the syntax tree of a source in Python 3, or why it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of literals and escapes
            return ast.parse(source), ""
    except SyntaxError as error:
        return None, f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return None, str(error) or "it is nested too deeply"


def only_defines(source: str) -> bool:
    """Return whether a Python program defines functions or classes, and runs none of them.

    Examples:
        >>> only_defines("def f(): pass"), only_defines("f = print; f()")
        (True, False)

    Args:
        source: the source.
    """
    tree, _ = _parsed(source)
    body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)] if tree else []
    statements = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return bool(statements) and all(isinstance(node, definitions) for node in statements)


def _similar_spaces(source: str, language: str) -> tuple[str, ...]:
    """Return the names of the spaces of similar programs."""
    judge, submission = JUDGE_SPACE.format(language), SUBMISSION_SPACE.format(language)
    if language == "Python":
        if TRITON_KERNEL.search(source):
            return KERNEL_SPACES
        is_solution = _DEFINITION.search(source) and not _READS_INPUT.search(source)
        return (*SOLUTION_SPACES, judge) if is_solution else SCRIPT_SPACES
    return (submission, judge) if _ENTRY_POINT.search(source) else (judge, submission)
