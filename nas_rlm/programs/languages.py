"""Programming languages: endings of their files, and recognition of the language from the source."""

from __future__ import annotations

import json
import re
from pathlib import Path

from nas_rlm.text.parser import is_onnx_text

LANGUAGES = {  # by suffix, in lower case
    **{".py": "Python", ".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++", ".java": "Java"},
    **{".kt": "Kotlin", ".kts": "Kotlin", ".swift": "Swift", ".cs": "C#", ".go": "Go", ".rs": "Rust"},
    **{".js": "JavaScript", ".mjs": "JavaScript", ".cjs": "JavaScript", ".ts": "TypeScript", ".rb": "Ruby"},
    **{".scala": "Scala", ".php": "PHP", ".dart": "Dart", ".rkt": "Racket", ".erl": "Erlang"},
    **{".ex": "Elixir", ".exs": "Elixir"},
}
UNKNOWN_LANGUAGES = {  # by suffix, in lower case: no table has programs in them
    **{".hs": "Haskell", ".lua": "Lua", ".r": "R", ".jl": "Julia", ".pl": "Perl", ".pas": "Pascal"},
    **{".zig": "Zig", ".ml": "OCaml", ".fs": "F#", ".clj": "Clojure", ".lisp": "Lisp", ".nim": "Nim"},
    **{".f90": "Fortran", ".f": "Fortran", ".d": "D", ".vb": "Visual Basic", ".cob": "COBOL"},
    **{".groovy": "Groovy", ".sh": "a shell", ".bash": "a shell", ".sql": "SQL"},
    **{".html": "HTML", ".css": "CSS", ".md": "Markdown"},
}
NETWORK_SUFFIXES = (".onnx", ".pb", ".pbtxt", ".onnxtxt", ".json", ".ort", ".pt", ".pth", ".safetensors")
JSON, HTML, PROSE = "JSON", "HTML", "text without code"
MAX_PREFIX_BYTES = 2**14  # of a file that are read to recognise its language
_JAVA_TYPE = r"(?:int|long|double|float|boolean|char|void|[A-Z]\w*(?:<[^;(){}=]{1,60}>)?)(?:\[\])*"
_PATTERNS = {
    "Python": r"^[ \t]*(?:async )?def \w+\([^\n]{0,200}:[ \t]*(?:#[^\n]{0,200})?$|^from [\w.]+ import "
    r"|^print\([^\n]{0,200}\)$|\A#![^\n]{0,200}python",
    "C++": r"#[ \t]*include[ \t]*<(?:iostream|vector|string|algorithm|map|set|queue|bits/stdc\+\+\.h)>"
    r"|\bstd::|\bvector<|\busing namespace std|^[ \t]*(?:public|private):[ \t]*$",
    "C": r"#[ \t]*include[ \t]*<(?:stdio|stdlib|stdbool|string|math|limits|ctype|stdint)\.h>|\bmalloc\("
    r"|\bcalloc\(|^(?:static )?(?:int|bool|char|long|double|void|struct \w+)[ \t]*\*{0,2}[ \t]*\w+\("
    r"(?:struct \w+|const char|int|char|bool|long|double)\b[^\n;]{0,200}\)[ \t\n]*\{",
    "Java": rf"^import (?:static )?java\.|\bpublic (?:static )?(?:final )?{_JAVA_TYPE} [a-z]\w*\("
    r"|\bSystem\.out\.",
    "C#": r"^[ \t]*using System|^[ \t]*namespace [\w.]+"
    rf"|\bpublic (?:static )?{_JAVA_TYPE}\??(?:\[,\])? [A-Z]\w*\(",
    "Kotlin": r"\bfun (?:<[^>\n]{1,40}> )?(?:\w+\.)?\w+\(",
    "Swift": r"\bfunc \w+(?:<[^>\n]{1,60}>)?\([ \t]*(?:\)|(?:\w+ )?\w+[ \t]*:)",
    "Go": r"^package \w+|^func (?:\(\w+ \*?\w+\) ?)?\w+\((?:\)|[\w, ]+ (?:\[|\*|\w))[^:\n]{0,200}\{",
    "Rust": r"\bfn \w+(?:<[^>\n]{1,60}>)?\(|^impl \w+|^use std::",
    "JavaScript": r"\bvar \w+ = function\b|\bmodule\.exports|\brequire\(['\"]"
    r"|^(?:export )?(?:const|let|var) \w+ = (?:async )?\(?[\w, =]{0,200}\)? =>"
    r"|^(?:export )?function \w+\([\w, =]{0,200}\)[ \t\n]*\{"
    r"|@param \{(?:number|string|character|boolean)[\w\[\]]*\}|^[ \t]*console\.log\(",
    "TypeScript": r"\bfunction \w+(?:<[^>\n]{1,60}>)?\([^\n]{0,200}\w\??[ \t]*:[ \t]*[\w\[{]"
    r"|\b(?:const|let|var) \w+[ \t]*:[ \t]*(?:number|string|boolean|Map|Set|Array|Record)\b"
    r"|\) ?: (?:number|string|boolean|void)(?:\[\])* (?:=>|\{)",
    "Ruby": r"^[ \t]*def [\w.?!=]+(?:\([\w, =*&:\[\]]*\))?[ \t]*$"
    r"|@param \{(?:Integer|String|Character|Boolean|Float)[\w\[\]]*\}",
    "Scala": r"\bdef \w+[\[(: ][^\n=]{0,200}:[ \t]*[A-Z][\w\[\], ()]{0,60}="
    r"|^object \w+",
    "PHP": r"<\?php|\bfunction &?\w*\([^\n)]{0,200}\$\w",
    "Dart": r"\bList\.(?:filled|generate|from|of)\(|\bfor \((?:final|var) \w+ in "
    r"|^import ['\"](?:dart|package):"
    r"|\bList<(?:int|double|bool)>+\??|\bMap<int, int>|\b(?:int|bool|String)\? \w+[;=]",
    "Racket": r"^#lang racket|^\(define[/( ]|^\(require ",
    "Erlang": r"^-(?:spec|module|export)[ (]",
    "Elixir": r"^[ \t]*defmodule [\w.]+ do\b|^[ \t]*@spec \w+\(|^[ \t]*defp? \w+[^\n]{0,200} do[ \t]*$",
}
_COMPILED = {language: re.compile(pattern, re.MULTILINE) for language, pattern in _PATTERNS.items()}
# Languages whose constructs a program of the first language may have as well.
_SUBSUMED = {
    **{"C++": ("C", "Java"), "C#": ("Java", "C", "Dart"), "Java": ("C", "Dart"), "Dart": ("C",)},
    **{"Kotlin": ("Java", "TypeScript", "Swift"), "Swift": ("TypeScript",), "Go": ("Swift",)},
    **{"Rust": ("C++",), "TypeScript": ("JavaScript",), "PHP": ("JavaScript", "C#"), "Elixir": ("Ruby",)},
    **{"Scala": ("Ruby", "TypeScript"), "Erlang": ("Kotlin",)},
}
_HTML, _CODE = re.compile(r"\A\s*<(?:!doctype html|html)\b", re.IGNORECASE), re.compile(r"[({=;]")
_LANGUAGES_OF_WORDS = ("Python", "Ruby", "Elixir")  # whose programs may be words alone
_DIALECTS = {"C++": ("C",), "TypeScript": ("JavaScript",)}  # languages of which most programs are valid too


def language_of_file(path: Path) -> str:
    """Return the language of a program by the ending of its file, else by its source.

    Args:
        path: a file, which may be a network or missing.

    Returns:
        The language; empty for a file that is no program.

    Raises:
        ValueError: the file is text, and neither its ending nor its source says in which language, or in
            another one.
    """
    suffix = path.suffix.lower()
    if suffix in LANGUAGES:
        return LANGUAGES[suffix]
    endings = f"expected an ONNX file, or a program whose name ends in {', '.join(LANGUAGES)}"
    if suffix in UNKNOWN_LANGUAGES:
        raise ValueError(f"{path} is in {UNKNOWN_LANGUAGES[suffix]}, which no model has learnt: {endings}")
    if suffix in NETWORK_SUFFIXES or not path.is_file():
        return ""
    with open(path, "rb") as file:
        content = file.read(MAX_PREFIX_BYTES)
    if b"\0" in content:
        return ""
    try:
        source = content.decode(errors="strict" if len(content) < MAX_PREFIX_BYTES else "ignore")
    except UnicodeDecodeError:
        return ""
    if not source.strip() or is_onnx_text(source):
        return ""
    found = recognise(source)
    if len(found) != 1:
        reason = f"may be {' or '.join(found)}" if found else "is text in no language that is recognised"
        raise ValueError(f"{path} {reason}: {endings}")
    return found[0]


def recognise(source: str) -> list[str]:
    """Return the languages that a program may be written in, by constructs that few languages have.

    Examples:
        >>> recognise("fun twice(n: Int) = 2 * n"), recognise("x = 1")
        (['Kotlin'], [])

    Args:
        source: the program.
    """
    found = [language for language, pattern in _COMPILED.items() if pattern.search(source)]
    return [name for name in found if not any(name in _SUBSUMED.get(other, ()) for other in found)]


def other_language(source: str, language: str) -> str:
    """Return the language, or the format, of a source that is clearly not in its supposed language.

    Examples:
        >>> other_language("fun twice(n: Int) = 2 * n", "Java"), other_language("x = 1", "Java")
        ('Kotlin', '')

    Args:
        source: the source.
        language: the supposed language.

    Returns:
        The only other language that the source may be in, JSON, HTML or `PROSE`; empty if it is not clear.
    """
    if _is_json(source):
        return JSON
    if _HTML.match(source) and language != "PHP":
        return HTML
    if language not in _LANGUAGES_OF_WORDS and not _CODE.search(source):
        return PROSE
    found = recognise(source)
    is_other = len(found) == 1 and found[0] not in _DIALECTS.get(language, ())
    return found[0] if is_other and not _COMPILED[language].search(source) else ""


def _is_json(source: str) -> bool:
    """Return whether a source is an object or a list in JSON, which is a program in no language."""
    if source.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(source)
    except (ValueError, RecursionError):
        return False
    return True
