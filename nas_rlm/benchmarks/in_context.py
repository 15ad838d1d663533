"""In-context regression: a language model sees measured examples in its prompt, and is asked for a number.

Source: section 5.1 of the paper. Any server that speaks OpenAI's chat completions can be asked.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np

from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.splits import train_validation_test_split
from nas_rlm.data.tables import Table
from nas_rlm.metrics import kendall, spearman
from nas_rlm.utils.progress import progress_bar

UNITS = {"memory": "bytes", "latency": "milliseconds", "accuracy": "percent"}
ATTEMPTS = 4  # at one question, where the server is busy or does not answer
PAUSE = 1.0  # seconds before the second attempt, twice as many before each further one
BUSY = (408, 429, 500, 502, 503, 504)  # what a server says that may answer later
MOST = 2**20  # bytes of an answer
_LONG = re.compile(r"context|length|too (?:long|large|many)", re.IGNORECASE)  # why a prompt is refused
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
KEYS = ("shots", "seed", "identifier")

Message = Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """Who is asked.

    Args:
        address: of the interface, such as `http://localhost:8000/v1`.
        model: as the server calls it.
        key: to be let in, where one is needed.
        seconds: that an answer may take.
    """

    address: str
    model: str
    key: str = ""
    seconds: float = 120.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.address)
            is_one = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            is_one = False
        if not is_one or not re.fullmatch(r"[!-~]+", self.address):
            raise ValueError(f"{self.address!r} is no server: expected such as http://localhost:8000/v1")
        if not re.fullmatch(r"[!-~]*", self.key):
            raise ValueError("the key has spaces, line breaks or letters beyond ASCII: expected none")

    def ask(self, messages: Sequence[Message]) -> tuple[str, int]:
        """What it answers, and how many tokens it read, or 0 where it does not say.

        Where it refuses a prompt for its length, the answer is empty.

        Raises:
            ValueError: it refuses for another reason, does not answer, or answers something else.
        """
        content = json.dumps({"model": self.model, "messages": [*messages]}).encode()
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        request = Request(f"{self.address.rstrip('/')}/chat/completions", content, headers)
        for attempt in range(ATTEMPTS):
            try:
                with urlopen(request, timeout=self.seconds) as reply:  # its scheme is checked above
                    return _understood(reply.read(MOST))
            except HTTPError as error:
                said = error.read(MOST).decode(errors="replace")
                if error.code == 413 or (error.code in (400, 422) and _LONG.search(said)):
                    return "", 0
                reason = f"{error.code} {error.reason} {' '.join(said.split())[:200]}".strip()
                if error.code not in BUSY:
                    break
            except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE * 2**attempt)
        raise ValueError(f"{self.address} does not answer {self.model!r}: {reason}")


@dataclass(frozen=True)
class Answer:
    """What was answered of one row.

    Args:
        true: what was measured.
        told: the answer; NaN where it was no number.
        tokens: that were read for it.
    """

    true: float
    told: float
    tokens: float


def answers(
    server: Server,
    table: Table,
    objective: str,
    shots: Sequence[int],
    asked: int = 100,
    seed: int = 0,
    done: Collection[tuple[int, int, str]] = (),
    progress: bool = False,
) -> Iterator[tuple[tuple[int, int, str], Answer]]:
    """Ask a server for numbers of held-out rows, with other rows in the prompt.

    Args:
        server: that is asked.
        table: of measured rows, split as everywhere.
        objective: the number.
        shots: for each of these counts, so many random rows of the training side are in the prompt.
        asked: so many random rows of the validation side are asked about.
        seed: of both choices.
        done: what is left out.
        progress: show a bar.

    Returns:
        As each is done: shots, seed and identifier, and the answer.

    Raises:
        ValueError: the table has too few rows with the objective, or the server fails.
    """
    known, held, _ = train_validation_test_split(table.where_measured(objective))
    if len(held) < 2 or len(known) < max(shots, default=0):
        raise ValueError(
            f"{table.name} has {len(known)} rows with {objective} to show and {len(held)} to ask about:"
            f" expected {max(shots, default=0)} and 2 at least"
        )
    rows = [held.rows[i] for i in np.random.default_rng(seed).permutation(len(held))[:asked]]
    texts = texts_of_rows(rows)
    often = Counter(row.identifier for row in rows)
    names = [row.identifier if often[row.identifier] == 1 else f"{i}" for i, row in enumerate(rows)]
    left = [(count, i) for count in shots for i, name in enumerate(names) if (count, seed, name) not in done]
    for count, i in progress_bar(left, "in context", unit="row", disable=not progress):
        rng = np.random.default_rng([seed, count, i])
        shown = [known.rows[k] for k in rng.permutation(len(known))[:count]]
        pairs = list(zip(texts_of_rows(shown), [row.targets[objective] for row in shown], strict=True))
        reply, tokens = server.ask(prompt(pairs, texts[i], objective))
        yield (count, seed, names[i]), Answer(rows[i].targets[objective], number(reply), tokens)


def prompt(shown: Sequence[tuple[str, float]], asked: str, objective: str) -> list[Message]:
    """The messages of a question.

    Args:
        shown: texts and what was measured of them.
        asked: the text that is asked about.
        objective: the number.
    """
    unit = UNITS.get(objective.split("/")[0], "")
    system = (
        f"You estimate a number of a program or a neural network from its text: {objective}"
        f"{f' in {unit}' if unit else ''}. Answer with one number and nothing else."
    )
    parts = [f"Text:\n{text}\n{objective}: {value:.6g}" for text, value in shown]
    parts.append(f"Text:\n{asked}\n{objective}:")
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]


def number(reply: str) -> float:
    """The last number of a reply, since reasons come before it; NaN where there is none.

    >>> number("About 12,345 bytes")
    12345.0
    """
    found = _NUMBER.findall(reply)
    value = float(found[-1].replace(",", "")) if found else math.nan
    return value if math.isfinite(value) else math.nan


def scores(found: Mapping[tuple[int, int, str], Answer]) -> dict[int, tuple[int, int, float, float, float]]:
    """For each count of shots: rows, those without a number, Spearman, Kendall, and mean tokens read.

    An answer that is no number counts as the median of the others.
    """
    told: dict[int, list[Answer]] = {}
    for (count, *_), one in sorted(found.items()):
        told.setdefault(count, []).append(one)
    figures = {}
    for count, of_count in told.items():
        values, true = (np.array([getattr(one, name) for one in of_count]) for name in ("told", "true"))
        silent = np.isnan(values)
        filled = np.where(silent, np.nanmedian(values) if not silent.all() else 0.0, values)
        tokens = float(np.mean([one.tokens for one in of_count]))
        figures[count] = (
            len(of_count),
            int(silent.sum()),
            spearman(filled, true),
            kendall(filled, true),
            tokens,
        )
    return figures


def _understood(content: bytes) -> tuple[str, int]:
    try:
        told: dict[str, Any] = json.loads(content)
        reply = told["choices"][0]["message"]["content"]
        tokens = (told.get("usage") or {}).get("prompt_tokens") or 0
        if not isinstance(reply, str):
            raise TypeError
        return reply, int(tokens)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(f"the answer {content[:80]!r} is none of a chat completion") from None
