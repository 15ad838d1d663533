"""Features of programs in any language: lexical structure, words of identifiers, and names of functions.

One lexer reads all languages: it knows comments, strings, numbers, words and indentation, and takes time
linear in the length of the program. The structure has sizes of arrays with constant bounds, nested loops,
containers, recursion and the like. Words of identifiers are equal for `twoSum` and `two_sum`, so that
programs of different languages share them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

CACHED_PROGRAMS = 16384  # whose structure is kept
MAX_CHARACTERS = 100_000  # of a program that are read
MIN_ELEMENTS = 16  # of an array whose size counts
MAX_SIZE = 1e11  # bytes of an array
MAX_VALUE = 1e15  # of a constant
MAX_EXPRESSION = 12  # tokens of a size
LARGE_CONSTANTS = (100.0, 1e8)  # range of constants that may be sizes of inputs
_LEXER = re.compile(
    r"(?P<skip>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|\#(?!\s*define\b)[^\n]*)"
    r"|(?P<string>\"\"\"[^\"]*\"\"\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<number>\d[\d_']*(?:\.\d+)?(?:[eE][+-]?\d+)?)[uUlLfF]*"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<line>\n[ \t]*)|(?P<operator>\*\*|<<|>>|[^\w\s])"
)
_ELEMENT_BYTES = {
    **{"bool": 1.0, "boolean": 1.0, "char": 1.0, "byte": 1.0, "short": 2.0, "int": 4.0, "Int": 4.0},
    **{"float": 4.0, "unsigned": 4.0, "long": 8.0, "double": 8.0, "ll": 8.0, "string": 32.0, "pair": 16.0},
    **{"vector": 24.0, "map": 48.0, "set": 48.0, "bitset": 0.125},
}
DEFAULT_ELEMENT_BYTES = 8.0
_WORDS_OF_KINDS = {
    "loops": "for while forEach foreach until times each loop repeat downTo",
    "conditions": "if elif else switch case when match cond",
    "functions": "def fn func fun function lambda define proc",
    "maps": "dict Counter defaultdict Dictionary OrderedDict HashMap TreeMap Map map unordered_map hash"
    " mutableMapOf HashTable",
    "sets": "set Set HashSet TreeSet unordered_set mutableSetOf frozenset LinkedHashSet",
    "lists": "list List ArrayList vector Array array append push_back push add IntArray MutableList slice"
    " LinkedList mutableListOf arrayOf emplace_back",
    "queues": "deque queue Queue ArrayDeque PriorityQueue priority_queue heapq heappush heappop Stack stack"
    " Deque popleft poll",
    "strings": "str String string StringBuilder join substring char toCharArray strings chars",
    "sorting": "sort sorted sortBy Sort sortWith qsort sort_by sortedBy",
    "memoisation": "memo cache lru_cache dp visited seen DP Memo cached memoize",
    "nodes": "TreeNode ListNode Node left right next root head",
    "reading": "input scanf cin readline stdin read getline gets getchar scan",
    "splitting": "split",
    "recursive_names": "dfs helper backtrack recurse rec",
    "wide_types": "long Long double int64_t ll float Double BigInteger i64",
    "narrow_types": "bool short byte",
    "allocations": "new malloc calloc resize reserve make alloc",
    "ranges": "range until xrange enumerate zip",
    "libraries": "numpy np pandas scipy networkx itertools collections bisect functools fractions",
    "printing": "print printf cout puts println",
    "generators": "yield iter",
    "copies": "copy deepcopy clone",
    "streams": "stream collect filter reduce Select Where flatMap",
    "standard": "std bits stdc",
    "permutations": "permutations combinations product",
    "imports": "import from include using",
}
_KINDS = {word: kind for kind, words in reversed(_WORDS_OF_KINDS.items()) for word in words.split()}
_LOOP_WORDS = frozenset(("for", "while", "forEach", "foreach", "loop"))
_ALLOCATING_WORDS = frozenset(
    ("vector", "range", "Array", "IntArray", "resize", "new", "malloc", "reserve", "make", "bitset")
)
_DEFINING_WORDS = frozenset(("def", "fun", "func", "fn", "function", "define"))
_NO_RETURN_TYPES = frozenset(("return", "new", "else", "throw", "in", "and", "or", "not"))
_OPERATOR_KINDS = {
    **dict.fromkeys(("%", "<<", ">>", "^", "&", "|"), "bits"),
    **dict.fromkeys(("*", "/", "**"), "products"),
    **{";": "semicolons", ",": "commas"},
}
_COMMON_CONSTANTS = (1000000007.0, 998244353.0, 2147483647.0)  # which say nothing of sizes
_COUNTED = (*_WORDS_OF_KINDS, "indexing", "two_dimensional", *dict.fromkeys(_OPERATOR_KINDS.values()))
STRUCTURE = (
    *("characters", "tokens", "lines", "indentation", "loop_depth", "nested_loops", "triple_loops"),
    *("brace_depth", "bracket_depth", "array_bytes", "largest_array", "arrays", "largest_constant"),
    *("second_constant", "large_constants", "numbers", "recursion", "definitions", "calls", "literals"),
    *("distinct_tokens", *_COUNTED),
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_FUNCTION = re.compile(
    r"\b(?:def|fun|func|fn|function|define(?:/contract)?)\s{1,3}\(?(?:\([^)\n]{0,60}\)\s)?([A-Za-z_][\w-]{0,80})"
    r"|[\w>\]*&][ \t*&]{1,4}([A-Za-z_]\w{0,80})\([^(){};]{0,200}\)\s{0,9}\{"
    r"|\b(?:var|const|let) (\w{1,80}) = (?:async )?(?:function|\()|^-spec (\w{1,80})",
    re.MULTILINE,
)
MAX_NAMED_CHARACTERS = 8000  # of a program in which names of functions are read
MIN_NAME_LENGTH = 3
_NO_FUNCTIONS = frozenset(
    ("for", "while", "switch", "main", "catch", "init", "else", "return", "solve", "elseif", "foreach")
) | {"constructor", "function", "def"}


def structure_matrix(programs: Sequence[str]) -> np.ndarray:
    """Return the structure of each program, float32 [N, len(STRUCTURE)]; counts and sizes are logarithms.

    Examples:
        >>> found = structure_matrix(["int a[1000][1000]; int main() { for (;;) for (;;) {} }"])[0]
        >>> structure = dict(zip(STRUCTURE, found))
        >>> float(structure["loop_depth"]), round(np.expm1(structure["array_bytes"]) / 1e6)
        (2.0, 4)

    Args:
        programs: sources of N programs.
    """
    rows = [[structure[name] for name in STRUCTURE] for structure in map(_structure, programs)]
    return np.array(rows, dtype=np.float32).reshape(len(programs), len(STRUCTURE))


def identifier_words(program: str) -> list[str]:
    """Return the identifiers of a program in lower case with underscores, and the words in them.

    Examples:
        >>> identifier_words("twoSum(nums)")
        ['two_sum', '.two', '.sum', '.nums']
    """
    found = []
    for identifier in _IDENTIFIER.findall(program[:MAX_CHARACTERS]):
        words = [word.lower() for word in _WORD.findall(identifier)]
        found += ["_".join(words)] * (len(words) > 1) + [f".{word}" for word in words]
    return found


def function_names(program: str) -> list[str]:
    """Return the names of a program's functions as `identifier_words` does, and pairs of their words.

    Examples:
        >>> function_names("fun twoSum(nums: IntArray) {}")
        ['two_sum', '.two', '.sum', 'two+sum']
    """
    found = []
    for match in _FUNCTION.finditer(program[:MAX_NAMED_CHARACTERS]):
        name = next(filter(None, match.groups()))
        words = [word.lower() for word in _WORD.findall(name)]
        if name in _NO_FUNCTIONS or len(name) < MIN_NAME_LENGTH or not words:
            continue
        found.append("_".join(words))
        if len(words) > 1:
            found += [f".{word}" for word in words]
            found += [f"{a}+{b}" for a, b in pairwise(words)]
    return found


class _Scanner:
    """Tokens of a program, with counts and depths that are found while they are read.

    Args:
        program: the source.
    """

    def __init__(self, program: str) -> None:
        self.tokens: list[str] = []
        self.token_lines: list[int] = []
        self.counts: Counter[str] = Counter()
        self.lines = self.indentation = self.literals = 0
        self.loop_depth = self.nested_loops = self.triple_loops = 0
        self.brace_depth = self.bracket_depth = 0
        self._loops: list[tuple[int, int, int]] = []  # indentation, line and braces of each enclosing loop
        self._indent = self._braces = self._brackets = 0
        for match in _LEXER.finditer(program):
            kind = match.lastgroup or ""
            if kind == "line":
                self._indent, self.lines = len(match[0].expandtabs(4)) - 1, self.lines + 1
            elif kind == "string":
                self.literals += 1
                self._append('""')
            elif kind != "skip":
                self._read(match[kind], kind)

    def _read(self, token: str, kind: str) -> None:
        """Count a word, a number or an operator."""
        self.indentation = max(self.indentation, self._indent)
        if kind == "word":
            if token in _KINDS:
                self.counts[_KINDS[token]] += 1
            if token in _LOOP_WORDS:
                self._enter_loop()
        elif kind == "operator":
            self._read_operator(token)
        self._append(token)

    def _append(self, token: str) -> None:
        self.tokens.append(token)
        self.token_lines.append(self.lines)

    def _enter_loop(self) -> None:
        """Leave the loops that ended before this one, and count the depth."""
        while self._loops and not self._is_inside(*self._loops[-1]):
            self._loops.pop()
        self._loops.append((self._indent, self.lines, self._braces))
        depth = len(self._loops)
        self.loop_depth = max(self.loop_depth, depth)
        self.nested_loops += depth >= 2
        self.triple_loops += depth >= 3

    def _is_inside(self, indent: int, line: int, braces: int) -> bool:
        """Return whether the position is inside a loop."""
        return self._braces >= braces and (self._indent > indent or self.lines == line)

    def _read_operator(self, token: str) -> None:
        if token in _OPERATOR_KINDS:
            self.counts[_OPERATOR_KINDS[token]] += 1
        elif token == "{":
            self._braces += 1
            self.brace_depth = max(self.brace_depth, self._braces)
        elif token == "}":
            self._braces = max(0, self._braces - 1)
        elif token == "[":
            self._brackets += 1
            self.bracket_depth = max(self.bracket_depth, self._brackets)
            self.counts["indexing"] += 1
            self.counts["two_dimensional"] += self.tokens[-1:] == ["]"]
        elif token == "]":
            self._brackets = max(0, self._brackets - 1)


@lru_cache(maxsize=CACHED_PROGRAMS)
def _structure(program: str) -> dict[str, float]:
    """Return the structure of a program by name."""
    scanner = _Scanner(program[:MAX_CHARACTERS])
    tokens = scanner.tokens
    constants = _named_constants(tokens, scanner.token_lines)
    sizes = [min(size, MAX_SIZE) for size in _array_sizes(tokens, constants)]
    numbers = [v for t in tokens if t[0].isdigit() and (v := _value([t], {})) is not None]
    numbers = [v for v in numbers if v not in _COMMON_CONSTANTS] + list(constants.values())
    low, high = LARGE_CONSTANTS
    large = [*sorted((v for v in numbers if low <= v <= high), reverse=True), 0.0, 0.0]
    called = Counter(a for a, b in pairwise(tokens) if b == "(" and _is_name(a))
    defined = _defined_functions(tokens)
    logarithms = {
        **{"characters": len(program), "tokens": len(tokens), "lines": scanner.lines},
        **{"nested_loops": scanner.nested_loops, "triple_loops": scanner.triple_loops},
        **{"array_bytes": min(sum(sizes), MAX_SIZE), "largest_array": max(sizes, default=0.0)},
        **{"arrays": len(sizes), "largest_constant": large[0]},
        **{"second_constant": large[1], "large_constants": len(large) - 2},
        **{"numbers": len(numbers), "recursion": sum(called[name] >= 2 for name in defined)},
        **{"definitions": len(defined), "calls": max((called[name] for name in defined), default=0)},
        **{"literals": scanner.literals, "distinct_tokens": len(set(tokens))},
        **{name: scanner.counts[name] for name in _COUNTED},
    }
    return {
        **{name: math.log1p(value) for name, value in logarithms.items()},
        **{"indentation": scanner.indentation, "loop_depth": scanner.loop_depth},
        **{"brace_depth": scanner.brace_depth, "bracket_depth": scanner.bracket_depth},
    }


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def _value(tokens: Sequence[str], constants: Mapping[str, float]) -> float | None:
    """Return the value of sums and products of numbers and named constants; None if it is not known.

    Examples:
        >>> _value(["N", "+", "5", "*", "2"], {"N": 100.0})
        110.0
    """
    total, sign, operator = 0.0, 1.0, ""
    term: float | None = None
    for token in tokens:
        if token in ("(", ")", "int", "long", "LL", "ll"):
            continue
        if token in ("+", "-"):
            total, term = total + sign * (term or 0.0), None
            sign = 1.0 if token == "+" else -1.0
        elif token in ("*", "/", "<<", "**"):
            operator = token
        else:
            value = constants.get(token)
            if value is None and token[0].isdigit():
                value = min(float(re.sub("[_']", "", token)), MAX_VALUE)
            if value is None:
                return None
            term = value if term is None else _combined(term, operator, value)
    result = total + sign * term if term is not None else None
    return result if result is not None and 0 <= result <= MAX_VALUE else None


def _combined(left: float, operator: str, right: float) -> float:
    """Return the result of an operator, at most `MAX_VALUE`."""
    if operator == "/":
        return left / right if right else 0.0
    if operator == "<<":
        return min(left * 2.0 ** min(right, 50.0), MAX_VALUE)
    if operator == "**":
        return min(min(left, 1e6) ** min(right, 20.0), MAX_VALUE)
    return min(left * right, MAX_VALUE)


def _named_constants(tokens: Sequence[str], lines: Sequence[int]) -> dict[str, float]:
    """Return the values of macros, of constants, and of variables whose names are in upper case.

    Args:
        tokens: the tokens of a program.
        lines: line of each token; a value is in one line.
    """
    constants: dict[str, float] = {}
    for i in range(len(tokens) - 2):
        name = tokens[i + 1] if tokens[i] == "define" else tokens[i]
        if tokens[i] == "define":
            expression = list(tokens[i + 2 : i + 3 if tokens[i + 2] != "(" else i + 8])
        elif tokens[i + 1] == "=" and _is_name(name) and _is_constant(tokens, i):
            end = i + 2
            limit = min(len(tokens), i + 2 + MAX_EXPRESSION)
            while end < limit and lines[end] == lines[i + 1] and tokens[end] not in (";", ",", "}", '""'):
                end += 1
            expression = list(tokens[i + 2 : end])
        else:
            continue
        value = _value(expression, constants)
        value = _value(expression[:1], constants) if value is None else value
        if value is not None and _is_name(name):
            constants[name] = value
    return constants


def _is_constant(tokens: Sequence[str], index: int) -> bool:
    """Return whether the variable that is assigned at an index is a constant."""
    before = tokens[max(0, index - 4) : index]
    return tokens[index].isupper() or "const" in before or "constexpr" in before


def _array_sizes(tokens: Sequence[str], constants: Mapping[str, float]) -> Iterator[float]:
    """Yield the bytes of each array whose bounds are known, such as `int a[1000][10]` or `[0] * 1000`."""
    element, i = DEFAULT_ELEMENT_BYTES, 0
    while i < len(tokens) - 2:
        token, following = tokens[i], tokens[i + 1]
        element = _ELEMENT_BYTES.get(token, DEFAULT_ELEMENT_BYTES if token in (";", "{") else element)
        elements, end = 0.0, i + 1
        if following == "[" and _is_name(token):
            elements, end = _bounds(tokens, i + 1, constants)
            elements *= element
        elif token == "]" and following == "*":
            elements = (_value(tokens[i + 2 : i + 3], constants) or 0.0) * DEFAULT_ELEMENT_BYTES
        elif token in _ALLOCATING_WORDS:
            elements = _first_argument(tokens, i + 1, constants) * DEFAULT_ELEMENT_BYTES
        if elements >= MIN_ELEMENTS * element:
            yield elements
        i = max(end, i + 1)


def _bounds(tokens: Sequence[str], start: int, constants: Mapping[str, float]) -> tuple[float, int]:
    """Return the product of the known bounds in brackets, 0 if none is, and the index after them."""
    product, is_known, i = 1.0, False, start
    while i < len(tokens) and tokens[i] == "[":
        end = i + 1
        while end < len(tokens) and tokens[end] not in ("[", "]") and end - i <= MAX_EXPRESSION:
            end += 1
        value = _value(tokens[i + 1 : end], constants)
        if value:
            product, is_known = min(product * value, MAX_SIZE), True
        if end >= len(tokens) or tokens[end] != "]":
            return (product if is_known else 0.0), max(end - 1, start)
        i = end + 1
    return (product if is_known else 0.0), max(i - 1, start)


def _first_argument(tokens: Sequence[str], start: int, constants: Mapping[str, float]) -> float:
    """Return the value of the first argument in the next parentheses or brackets; 0 if it is not known."""
    limit = min(len(tokens), start + MAX_EXPRESSION)
    opening = next((i for i in range(start, limit) if tokens[i] in ("(", "[")), limit)
    end = opening + 1
    while end < min(len(tokens), opening + MAX_EXPRESSION) and tokens[end] not in (",", ")", "]", "("):
        end += 1
    return _value(tokens[opening + 1 : end], constants) or 0.0


def _defined_functions(tokens: Sequence[str]) -> set[str]:
    """Return the names of functions that are defined; in languages without a keyword, after a type."""
    found = set()
    for before, name, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if not _is_name(name):
            continue
        is_typed = (
            after == "("
            and (before[0].isalpha() or before in (">", "]", "*"))
            and name not in _KINDS
            and before not in _NO_RETURN_TYPES
        )
        if (before in _DEFINING_WORDS and name != "main") or is_typed:
            found.add(name)
    return found
