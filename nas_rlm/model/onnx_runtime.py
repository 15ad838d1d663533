"""Predictions without torch: an exported network, by onnxruntime.

What `nas_rlm.model.onnx_export` wrote has the tokenizer, two graphs and what the network knows. It tells what the
network alone tells, for continuous integration and laptops.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.graph.cache import undisturbed
from nas_rlm.model.batching import MOST, gathered, in_batches, pad
from nas_rlm.model.numbers import TOKENS, DigitTree, NumberScheme
from nas_rlm.text import Tokenizer, from_architectures
from nas_rlm.text.statements import by_length, in_order, read, statements
from nas_rlm.utils.validation import check_names, hint, levels_of, listed
from search_spaces import SearchSpace

STATEMENTS, ENCODER, DECODER = "statements.onnx", "encoder.onnx", "decoder.onnx"
TOKENIZER = "tokenizer.model"  # but of a frozen encoder, which has its own
CONFIG = "config.json"
FILES = STATEMENTS, ENCODER, DECODER, TOKENIZER


@dataclass(frozen=True)
class Lite:
    """A network that tells medians and other quantiles; see `nas_rlm.RLM` for what is the same.

    >>> lite = Lite.load("runs/lite")
    >>> space = search_spaces.get("nasbench201")
    >>> lite.predict(space, [space.sample(np.random.default_rng(0))], ["accuracy"]).shape
    (1, 1)

    Args:
        encoder, decoder: sessions of onnxruntime.
        tokenizer: the pieces that it reads.
        objectives: the numbers that it can be asked for.
        seen: for each space those of them that it has seen there.
        temperatures: for each space, and the empty name, those of the objectives.
        max_length: tokens of a text that are read.
        scheme: of the numbers.
        reader: a session that reads statements, where the network reads those one by one.
    """

    encoder: Any
    decoder: Any
    tokenizer: Tokenizer
    objectives: tuple[str, ...]
    seen: dict[str, tuple[str, ...]]
    temperatures: dict[str, tuple[float, ...]]
    max_length: int
    scheme: NumberScheme
    reader: Any = None

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Lite:
        """What `nas_rlm.model.onnx_export.export_model` wrote.

        Raises:
            FileNotFoundError: there is no such folder, or a file of it is missing.
            ValueError: onnxruntime is not installed, or a file is damaged.
        """
        path = Path(folder)
        if not (path / CONFIG).is_file():
            raise FileNotFoundError(f"{folder} has no {CONFIG}: expected what nas-rlm export-model writes")
        try:
            from onnxruntime import InferenceSession
        except ImportError:
            raise ValueError(
                "an exported model needs onnxruntime: pip install 'nas-rlm[onnxruntime]'"
            ) from None
        try:
            told = json.loads((path / CONFIG).read_text())
            names = [name for name in FILES if name in told["files"] or name != STATEMENTS]
            content = {name: _content(path / name, told["files"][name]) for name in names}
            objectives = tuple(map(str, told["objectives"]))
            temperatures = {k: tuple(map(float, v)) for k, v in told["temperatures"].items()}
            whole = all(len(v) == len(objectives) for v in temperatures.values()) and "" in temperatures
            if not whole or not all(0 < t < math.inf for v in temperatures.values() for t in v):
                raise ValueError("temperatures are not one above 0 for each objective, of '' and of spaces")
            for name in ("max_length", "exponent_digits", "mantissa_digits"):
                if type(told[name]) is not int or told[name] < 1:
                    raise ValueError(f"{name} is {told[name]!r}, expected a whole number from 1 on")
            return cls(
                _session(InferenceSession, ENCODER, content),
                _session(InferenceSession, DECODER, content),
                Tokenizer(content[TOKENIZER]),
                objectives,
                {k: tuple(v) for k, v in told["seen"].items()},
                temperatures,
                told["max_length"],
                NumberScheme(told["exponent_digits"], told["mantissa_digits"]),
                _session(InferenceSession, STATEMENTS, content) if STATEMENTS in content else None,
            )
        except KeyError as error:
            raise ValueError(
                f"{path / CONFIG} has no {error}: expected what nas-rlm export-model writes"
            ) from None
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder} is not what nas-rlm export-model writes: {error}") from None

    def predict(
        self,
        space: SearchSpace[Any] | str,
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = MOST,
        progress: bool = False,
    ) -> np.ndarray:
        """As `nas_rlm.RLM.predict`: float64 [N, K] medians, or [N, K, Q]."""
        self.check(objectives)
        architectures = listed(architectures, "architectures")
        known = search_spaces.get(space) if isinstance(space, str) else space
        unseen = [name for name in objectives if name not in self.seen.get(known.name, ())]
        if unseen:
            warnings.warn(
                f"the model has never seen {', '.join(unseen)} of {known.name}: what it writes is a guess",
                stacklevel=2,
            )
        parsed = [known.parse(a) if isinstance(a, str) else known.checked(a) for a in architectures]
        with undisturbed():
            texts = from_architectures(known, parsed)
            return self.predict_text(texts, objectives, quantiles, batch_size, progress, known.name)

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = MOST,
        progress: bool = False,
        space: str = "",
    ) -> np.ndarray:
        """As `nas_rlm.RLM.predict_text`."""
        self.check(objectives)
        levels = levels_of(quantiles)
        batches = in_batches(texts, self.tokenizer.encode, self.max_length, batch_size)
        values = (self._told(pad([ids for _, ids in b]), objectives, levels, space) for b in batches)
        found = gathered(texts, batches, values, (len(objectives), len(levels)), progress)
        return found if quantiles is not None else found[:, :, 0]

    def check(self, objectives: Sequence[str]) -> None:
        """Refuse objectives that the network does not know, and repeated ones."""
        check_names(objectives)
        for name in objectives:
            if name not in self.objectives:
                raise ValueError(
                    f"the model does not know the objective {name!r}; {hint(name, self.objectives)}"
                )

    def _told(
        self, ids: np.ndarray, objectives: Sequence[str], levels: Sequence[float], space: str
    ) -> np.ndarray:
        """Quantiles of B padded texts, float64 [B, K, Q]; see `nas_rlm.model.decoding.quantile`."""
        memory = dict(zip(self._memory, self.encoder.run(None, self._given(ids)), strict=True))
        places = [self.objectives.index(name) for name in objectives]
        known = self.temperatures.get(space, self.temperatures[""])
        walks = [(TOKENS + place, known[place], level) for place in places for level in levels]
        first, divisor, level = (np.tile(column, len(ids))[:, None] for column in zip(*walks, strict=True))
        tree, written = DigitTree(self.scheme), first.astype(np.int64)
        state = np.zeros(len(written), dtype=np.int64)
        for position in range(self.scheme.length):
            logits = self.decoder.run(None, {"digits": written, **memory})[0].astype(float)
            children = tree.order[position, state]
            scores = np.take_along_axis(logits / divisor, children.clip(min=0), 1)
            scores[children < 0] = -np.inf
            shares = np.exp(scores - scores.max(1, keepdims=True))
            edges = np.pad(shares.cumsum(1) / shares.sum(1, keepdims=True), ((0, 0), (1, 0)))
            target = level * edges[:, -1:]
            chosen = (edges[:, 1:] < target).sum(1, keepdims=True)
            low, high = (np.take_along_axis(edges, chosen + k, 1) for k in (0, 1))
            level = (target - low) / (high - low)
            digit = np.take_along_axis(children, chosen, 1)
            state = tree.step[position, state, digit[:, 0]]
            written = np.concatenate([written, digit], 1)
        values = self.scheme.decode_array(written[:, 1:])
        return values.reshape(len(ids), len(objectives), len(levels))

    def _given(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """What the encoder reads of padded texts: their tokens, or their statements' states and names."""
        if self.reader is None:
            return {"ids": ids}
        cut = statements(ids, self._kinds)
        groups = by_length(cut.different)
        states = [
            self.reader.run(None, {"ids": read([cut.different[i] for i in group], length)})[0]
            for length, group in groups.items()
        ]
        filled = cut.places < 0
        different = np.concatenate(states)[in_order(groups)]
        states_of_all = different[cut.places]
        return {"states": states_of_all, "names": cut.names, "filled": filled, "sources": cut.sources}

    @cached_property
    def _kinds(self) -> np.ndarray:
        return self.tokenizer.kinds()

    @property
    def _memory(self) -> list[str]:
        """What the decoder reads besides digits, in the order in which the encoder gives it."""
        return [given.name for given in self.encoder.get_outputs()]


def is_exported(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds what `nas_rlm.model.onnx_export.export_model` wrote, or some of it."""
    return any((Path(folder) / name).is_file() for name in (STATEMENTS, ENCODER, DECODER))


def _content(path: Path, sha256: str) -> bytes:
    """What a file holds.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it holds something else.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.parent} has no {path.name}: expected what nas-rlm export-model writes"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path.name} is damaged, or another model's: its sha256 is not that of {CONFIG}")
    return content


def _session(kind: Any, name: str, content: Mapping[str, bytes]) -> Any:
    try:
        return kind(content[name], providers=["CPUExecutionProvider"])
    except Exception as error:  # of classes that onnxruntime does not name
        raise ValueError(f"{name} is not read by onnxruntime: {str(error).splitlines()[0]}") from None
