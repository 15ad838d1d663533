"""Predictions without torch: an exported network, by onnxruntime.

What `nas_rlm.export` wrote has the tokenizer, two graphs and what the network knows. It tells what the
network alone tells, for continuous integration and laptops.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import search_spaces
from nas_rlm.arguments import check_names, levels_of, listed
from nas_rlm.batching import MOST, gathered, in_batches, pad
from nas_rlm.hints import hint
from nas_rlm.numbers import TOKENS, DigitTree, NumberScheme
from nas_rlm.statements import by_length, in_order, read, statements
from nas_rlm.text import Tokenizer, from_architectures
from nas_rlm.text.memory import undisturbed
from search_spaces import SearchSpace

STATEMENTS, ENCODER, DECODER = "statements.onnx", "encoder.onnx", "decoder.onnx"


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
        """What `nas_rlm.export.export_model` wrote.

        Raises:
            FileNotFoundError: there is no such folder, or a file of it is missing.
            ValueError: onnxruntime is not installed, or a file is damaged.
        """
        path = Path(folder)
        for name in (ENCODER, DECODER, "config.json", "tokenizer.model"):
            if not (path / name).is_file():
                raise FileNotFoundError(f"{folder} has no {name}: expected what nas-rlm export-model writes")
        try:
            from onnxruntime import InferenceSession
        except ImportError:
            raise ValueError(
                "an exported model needs onnxruntime: pip install 'nas-rlm[onnxruntime]'"
            ) from None
        try:
            told = json.loads((path / "config.json").read_text())
            objectives = tuple(map(str, told["objectives"]))
            temperatures = {k: tuple(map(float, v)) for k, v in told["temperatures"].items()}
            if any(len(v) != len(objectives) or min(v) <= 0 for v in temperatures.values()):
                raise ValueError("temperatures are not one above 0 for each objective")
            encoder, decoder = (_session(InferenceSession, path / name) for name in (ENCODER, DECODER))
            return cls(
                encoder,
                decoder,
                Tokenizer.load(path / "tokenizer.model"),
                objectives,
                {k: tuple(v) for k, v in told["seen"].items()},
                temperatures,
                int(told["max_length"]),
                NumberScheme(int(told["exponent_digits"]), int(told["mantissa_digits"])),
                _session(InferenceSession, path / STATEMENTS) if (path / STATEMENTS).is_file() else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
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
        """Quantiles of B padded texts, float64 [B, K, Q]; see `nas_rlm.decoding.quantile`."""
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
        """What the encoder reads of padded texts: their tokens, or the states of their statements."""
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
        return {"states": different[cut.places], "filled": filled, "sources": cut.sources}

    @cached_property
    def _kinds(self) -> np.ndarray:
        return self.tokenizer.kinds()

    @property
    def _memory(self) -> list[str]:
        """What the decoder reads besides digits, in the order in which the encoder gives it."""
        return [given.name for given in self.encoder.get_outputs()]


def _session(kind: Any, path: Path) -> Any:
    try:
        return kind(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # of classes that onnxruntime does not name
        raise ValueError(f"{path.name} is damaged: {str(error).splitlines()[0]}") from None
