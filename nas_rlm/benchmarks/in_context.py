"""In-context regression: a large language model predicts a number from measured examples in its prompt.

Any server with OpenAI's chat completions can be queried. Source: section 5.1 of the paper.
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
from search_spaces.wording import counted

UNITS = {"memory": "bytes", "latency": "milliseconds", "accuracy": "percent"}
MAX_ATTEMPTS = 4  # per request, where the server is busy or does not answer
FIRST_PAUSE = 1.0  # seconds before the second attempt, doubled before each further one
BUSY_STATUS = (408, 429, 500, 502, 503, 504)  # HTTP status codes after which a retry may succeed
MAX_REPLY_BYTES = 2**20
_LENGTH_ERROR = re.compile(r"context|length|too (?:long|large|many)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

Key = tuple[int, int, str]
KEY_NAMES = ("shots", "seed", "identifier")
Message = Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """A server of a large language model.

    Args:
        address: base URL of the API, such as `http://localhost:8000/v1`.
        model: name of the model on the server.
        key: API key; empty if the server needs none.
        timeout: seconds before a request fails.

    Raises:
        ValueError: the address or the key is invalid.
    """

    address: str
    model: str
    key: str = ""
    timeout: float = 120.0

    def __post_init__(self) -> None:
        try:
            url = urlsplit(self.address)
            is_valid = url.scheme in ("http", "https") and url.hostname and (url.port or True)
        except ValueError:
            is_valid = False
        if not is_valid or not re.fullmatch(r"[!-~]+", self.address):
            raise ValueError(
                f"{self.address!r} is not the address of a server: expected such as http://localhost:8000/v1"
            )
        if not re.fullmatch(r"[!-~]*", self.key):
            raise ValueError("the key has spaces, line breaks or non-ASCII letters: expected none")

    def complete(self, messages: Sequence[Message]) -> tuple[str, int]:
        """Send messages and return the reply.

        Args:
            messages: messages with role and content.

        Returns:
            The reply, empty if the server refuses the prompt for its length; and the number of tokens of the
            prompt, 0 if the server does not report it.

        Raises:
            ValueError: the server refuses the request for another reason, does not answer, or answers
                something else.
        """
        content = json.dumps({"model": self.model, "messages": [*messages]}).encode()
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        request = Request(f"{self.address.rstrip('/')}/chat/completions", content, headers)
        for attempt in range(MAX_ATTEMPTS):
            try:
                with urlopen(request, timeout=self.timeout) as reply:  # its scheme is checked above
                    return _parse_reply(reply.read(MAX_REPLY_BYTES))
            except HTTPError as error:
                body = error.read(MAX_REPLY_BYTES).decode(errors="replace")
                if error.code == 413 or (error.code in (400, 422) and _LENGTH_ERROR.search(body)):
                    return "", 0
                reason = f"{error.code} {error.reason} {' '.join(body.split())[:200]}".strip()
                if error.code not in BUSY_STATUS:
                    break
            except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt + 1 < MAX_ATTEMPTS:
                time.sleep(FIRST_PAUSE * 2**attempt)
        raise ValueError(f"{self.address} does not answer {self.model!r}: {reason}")


@dataclass(frozen=True)
class Answer:
    """The prediction of one row.

    Args:
        true: measured value.
        predicted: predicted value; NaN if the reply has no number.
        tokens: tokens of the prompt.
    """

    true: float
    predicted: float
    tokens: float


def query_server(
    server: Server,
    table: Table,
    objective: str,
    shots: Sequence[int],
    num_rows: int = 100,
    seed: int = 0,
    finished: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, Answer]]:
    """Predict an objective of random validation rows, with random training rows as examples.

    Args:
        server: the server.
        table: measured rows; they are split into training, validation and test rows as usual.
        objective: the objective.
        shots: numbers of examples in a prompt.
        num_rows: number of validation rows.
        seed: seed of the rows and the examples.
        finished: keys to skip.
        progress: show a progress bar.

    Yields:
        Number of examples, seed and identifier of the row, and the answer, as soon as each is available.

    Raises:
        ValueError: the table has too few rows with the objective, or the server fails.
    """
    train, validation, _ = train_validation_test_split(table.where_measured(objective))
    max_shots = max(shots, default=0)
    if len(validation) < 2 or len(train) < max_shots:
        raise ValueError(
            f"{table.name} has {len(train):,} training and {counted(len(validation), 'validation row')} with"
            f" {objective}:"
            f" expected at least {max_shots} and 2"
        )
    order = np.random.default_rng(seed).permutation(len(validation))[:num_rows]
    rows = [validation.rows[i] for i in order]
    texts = texts_of_rows(rows)
    counts = Counter(row.identifier for row in rows)
    names = [row.identifier if counts[row.identifier] == 1 else f"{i}" for i, row in enumerate(rows)]
    remaining = [
        (count, i) for count in shots for i, name in enumerate(names) if (count, seed, name) not in finished
    ]
    for count, i in progress_bar(remaining, "in-context", unit="row", disable=not progress):
        rng = np.random.default_rng([seed, count, i])
        examples = [train.rows[k] for k in rng.permutation(len(train))[:count]]
        values = [row.targets[objective] for row in examples]
        pairs = list(zip(texts_of_rows(examples), values, strict=True))
        reply, num_tokens = server.complete(make_prompt(pairs, texts[i], objective))
        answer = Answer(rows[i].targets[objective], parse_number(reply), num_tokens)
        yield (count, seed, names[i]), answer


def make_prompt(examples: Sequence[tuple[str, float]], text: str, objective: str) -> list[Message]:
    """Return the messages that query an objective of a text.

    Args:
        examples: texts and their measured values.
        text: the text.
        objective: the objective.
    """
    unit = UNITS.get(objective.split("/")[0], "")
    system = (
        f"You estimate a number of a program or a neural network from its text: {objective}"
        f"{f' in {unit}' if unit else ''}. Answer with one number and nothing else."
    )
    parts = [f"Text:\n{example}\n{objective}: {value:.6g}" for example, value in examples]
    parts.append(f"Text:\n{text}\n{objective}:")
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]


def parse_number(reply: str) -> float:
    """Return the last number of a reply, since reasons precede it; NaN if there is none.

    Examples:
        >>> parse_number("About 12,345 bytes")
        12345.0
    """
    matches = _NUMBER.findall(reply)
    value = float(matches[-1].replace(",", "")) if matches else math.nan
    return value if math.isfinite(value) else math.nan


@dataclass(frozen=True)
class AnswerSummary:
    """How well the answers with one number of examples rank the rows.

    Args:
        rows: number of rows.
        without_number: number of replies without a number.
        spearman: Spearman correlation; replies without a number count as the median of the others.
        kendall: Kendall's tau, in the same way.
        tokens: mean number of tokens of a prompt.
    """

    rows: int
    without_number: int
    spearman: float
    kendall: float
    tokens: float


def summarize_answers(answers: Mapping[Key, Answer]) -> dict[int, AnswerSummary]:
    """Return a summary for each number of examples.

    Args:
        answers: see `query_server`.
    """
    by_shots: dict[int, list[Answer]] = {}
    for (shots, *_), answer in sorted(answers.items()):
        by_shots.setdefault(shots, []).append(answer)
    summaries = {}
    for shots, group in by_shots.items():
        predicted = np.array([answer.predicted for answer in group])
        true = np.array([answer.true for answer in group])
        is_missing = np.isnan(predicted)
        filled = np.where(is_missing, np.nanmedian(predicted) if not is_missing.all() else 0.0, predicted)
        summaries[shots] = AnswerSummary(
            rows=len(group),
            without_number=int(is_missing.sum()),
            spearman=spearman(filled, true),
            kendall=kendall(filled, true),
            tokens=float(np.mean([answer.tokens for answer in group])),
        )
    return summaries


def _parse_reply(content: bytes) -> tuple[str, int]:
    """Text and prompt tokens of a chat completion."""
    try:
        completion: dict[str, Any] = json.loads(content)
        reply = completion["choices"][0]["message"]["content"]
        num_tokens = (completion.get("usage") or {}).get("prompt_tokens") or 0
        if not isinstance(reply, str):
            raise TypeError
        return reply, int(num_tokens)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(f"the answer {content[:80]!r} is not a chat completion") from None
