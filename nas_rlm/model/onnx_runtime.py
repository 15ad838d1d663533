"""Predictions without torch: an exported network that onnxruntime runs.

`nas_rlm.model.onnx_export` writes the network as ONNX graphs, with its tokenizer and a configuration. The
predictions are those of the network without surrogates.
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
from nas_rlm.graph.cache import gc_paused
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE, gather_predictions, make_batches, named_texts, pad
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS, DigitTree, NumberScheme
from nas_rlm.text import Tokenizer, from_architectures
from nas_rlm.text.statements import group_by_length, order_after_grouping, pad_statements, split_statements
from nas_rlm.utils.extras import require
from nas_rlm.utils.validation import as_list, check_model_objectives, quantile_levels
from search_spaces import SearchSpace

STATEMENT_ENCODER_FILE = "statements.onnx"  # only of networks with statement layers
ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder.onnx"
TOKENIZER_FILE = "tokenizer.model"
CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class OnnxPredictor:
    """An exported network that predicts medians and other quantiles, with the interface of `nas_rlm.RLM`.

    Examples:
        >>> import numpy as np, search_spaces
        >>> space = search_spaces.get("nasbench201")
        >>> arch = space.sample(np.random.default_rng(0))
        >>> predictor = OnnxPredictor.load("runs/exported")  # doctest: +SKIP
        >>> predictor.predict(space, [arch], ["accuracy"]).shape  # doctest: +SKIP
        (1, 1)

    Args:
        encoder: onnxruntime session of the encoder.
        decoder: onnxruntime session of the decoder.
        tokenizer: tokenizer of the texts.
        objectives: objectives that the network can predict.
        trained_on: objectives that the network was trained on, by search space.
        temperatures: temperature of each objective, by search space; the key "" is for other spaces.
        max_length: texts are truncated to this number of tokens.
        scheme: scheme of the numbers.
        statement_encoder: onnxruntime session of the statement layers; None for a network without them.
        maximised: objectives that are maximised although their kind is not.
    """

    encoder: Any
    decoder: Any
    tokenizer: Tokenizer
    objectives: tuple[str, ...]
    trained_on: dict[str, tuple[str, ...]]
    temperatures: dict[str, tuple[float, ...]]
    max_length: int
    scheme: NumberScheme
    statement_encoder: Any = None
    maximised: tuple[str, ...] = ()

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> OnnxPredictor:
        """Read a directory that `nas_rlm.model.onnx_export.export_model` wrote.

        Raises:
            FileNotFoundError: the directory does not exist, or a file is missing.
            ValueError: onnxruntime is not installed, a file is damaged, or an older version of this package
                wrote the directory.
        """
        require("onnxruntime", "an exported model")
        path = Path(directory)
        if not (path / CONFIG_FILE).is_file():
            raise FileNotFoundError(
                f"{directory} has no {CONFIG_FILE}: expected a directory that nas-rlm export-model wrote"
            )
        from onnxruntime import InferenceSession

        try:
            saved = json.loads((path / CONFIG_FILE).read_text())
            if "seen" in saved:
                raise ValueError("an older version of nas-rlm wrote it, export the model again")
            required = ENCODER_FILE, DECODER_FILE, TOKENIZER_FILE
            optional = [STATEMENT_ENCODER_FILE] if STATEMENT_ENCODER_FILE in saved["files"] else []
            content = {
                name: _read_checked(path / name, saved["files"][name]) for name in [*optional, *required]
            }
            objectives = tuple(map(str, saved["objectives"]))
            for name in ("max_length", "exponent_digits", "mantissa_digits"):
                if type(saved[name]) is not int or saved[name] < 1:
                    raise ValueError(f"{name} is {saved[name]!r}, expected an integer of at least 1")
            return cls(
                _session(InferenceSession, ENCODER_FILE, content),
                _session(InferenceSession, DECODER_FILE, content),
                Tokenizer(content[TOKENIZER_FILE]),
                objectives,
                {space: tuple(names) for space, names in saved["trained_on"].items()},
                _temperatures(saved["temperatures"], len(objectives)),
                saved["max_length"],
                NumberScheme(saved["exponent_digits"], saved["mantissa_digits"]),
                _session(InferenceSession, STATEMENT_ENCODER_FILE, content) if optional else None,
                tuple(map(str, saved.get("maximised", ()))),
            )
        except KeyError as error:
            raise ValueError(
                f"{path / CONFIG_FILE} has no {error}: expected a file that nas-rlm export-model wrote"
            ) from None
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"the exported model {directory} cannot be loaded: {error}") from None

    def predict(
        self,
        space: SearchSpace[Any] | str,
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
    ) -> np.ndarray:
        """Predict objectives of architectures; see `nas_rlm.RLM.predict`.

        Args:
            space: search space or its name.
            architectures: N architectures or their strings.
            objectives: K names.
            quantiles: Q levels; None for the median only.
            batch_size: maximum number of texts in a batch.
            progress: show a progress bar.

        Returns:
            float64 [N, K] medians, or [N, K, Q].

        Raises:
            ValueError: the space, an objective or an architecture is unknown.

        Warns:
            UserWarning: the network was not trained on an objective of the space.
        """
        self.check(objectives)
        architectures = as_list(architectures, "architectures")
        search_space = search_spaces.checked(space)
        untrained = [name for name in objectives if name not in self.trained_on.get(search_space.name, ())]
        if untrained:
            warnings.warn(
                f"the model was not trained on {', '.join(untrained)} of {search_space.name}:"
                " predictions are unreliable",
                stacklevel=2,
            )
        parsed = [search_space.as_architecture(a) for a in architectures]
        with gc_paused():
            texts = from_architectures(search_space, parsed)
            with named_texts([str(architecture) for architecture in parsed]):
                return self.predict_text(
                    texts, objectives, quantiles, batch_size, progress, search_space.name
                )

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
        space: str = "",
    ) -> np.ndarray:
        """Predict objectives of N texts; otherwise as `predict`.

        Args:
            texts: N texts.
            objectives: as in `predict`.
            quantiles: as in `predict`.
            batch_size: as in `predict`.
            progress: as in `predict`.
            space: name of the search space whose temperatures are used; "" for the mean over spaces.

        Warns:
            TruncationWarning: texts are longer than the network reads.
        """
        self.check(objectives)
        levels = quantile_levels(quantiles)
        batches = make_batches(texts, self.tokenizer.encode, self.max_length, batch_size)
        batch_quantiles = (
            self._quantiles(pad([ids for _, ids in batch]), objectives, levels, space) for batch in batches
        )
        shape = len(objectives), len(levels)
        predictions = gather_predictions(texts, batches, batch_quantiles, shape, progress)
        return predictions if quantiles is not None else predictions[:, :, 0]

    def check(self, objectives: Sequence[str]) -> None:
        """Check that objectives are distinct names that the network can predict.

        Raises:
            ValueError: a name is unknown or repeated, or there are none.
        """
        check_model_objectives(objectives, self.objectives)

    def _quantiles(
        self, ids: np.ndarray, objectives: Sequence[str], levels: Sequence[float], space: str
    ) -> np.ndarray:
        """Quantiles of padded texts [B, T], float64 [B, K, Q]; see `nas_rlm.model.decoding.quantile`."""
        memory = dict(zip(self._memory_names, self.encoder.run(None, self._encoder_inputs(ids)), strict=True))
        indices = [self.objectives.index(name) for name in objectives]
        temperatures = self.temperatures.get(space, self.temperatures[""])
        walks = [(NUM_DIGIT_TOKENS + i, temperatures[i], level) for i in indices for level in levels]
        first, divisor, level = (np.tile(column, len(ids))[:, None] for column in zip(*walks, strict=True))
        tree, digits = DigitTree(self.scheme), first.astype(np.int64)
        state = np.zeros(len(digits), dtype=np.int64)
        for position in range(self.scheme.length):
            logits = self.decoder.run(None, {"digits": digits, **memory})[0].astype(float)
            children = tree.children[position, state]
            scores = np.take_along_axis(logits / divisor, children.clip(min=0), 1)
            scores[children < 0] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True))
            edges = np.pad(weights.cumsum(1) / weights.sum(1, keepdims=True), ((0, 0), (1, 0)))
            target = level * edges[:, -1:]
            chosen = (edges[:, 1:] < target).sum(1, keepdims=True)
            low, high = (np.take_along_axis(edges, chosen + k, 1) for k in (0, 1))
            level = (target - low) / (high - low)
            digit = np.take_along_axis(children, chosen, 1)
            state = tree.next_states[position, state, digit[:, 0]]
            digits = np.concatenate([digits, digit], 1)
        values = self.scheme.decode_array(digits[:, 1:])
        return values.reshape(len(ids), len(objectives), len(levels))

    def _encoder_inputs(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs of the encoder's graph for padded texts [B, T]: their tokens, or states of statements."""
        if self.statement_encoder is None:
            return {"ids": ids}
        split = split_statements(ids, self._kinds)
        groups = group_by_length(split.unique)
        states = [
            self.statement_encoder.run(
                None, {"ids": pad_statements([split.unique[i] for i in members], length)}
            )[0]
            for length, members in groups.items()
        ]
        unique_states = np.concatenate(states)[order_after_grouping(groups)]
        return {
            "states": unique_states[split.unique_index],
            "names": split.names,
            "is_padding": split.unique_index < 0,
            "sources": split.sources,
        }

    @cached_property
    def _kinds(self) -> np.ndarray:
        """The kinds of the tokenizer's tokens, see `Tokenizer.kinds`."""
        return self.tokenizer.kinds()

    @property
    def _memory_names(self) -> list[str]:
        """Names of the encoder's outputs, which are inputs of the decoder."""
        return [output.name for output in self.encoder.get_outputs()]


def is_exported(directory: str | os.PathLike[str]) -> bool:
    """Return whether a directory contains a graph that `nas_rlm.model.onnx_export.export_model` wrote."""
    graphs = STATEMENT_ENCODER_FILE, ENCODER_FILE, DECODER_FILE
    return any((Path(directory) / name).is_file() for name in graphs)


def _read_checked(path: Path, sha256: str) -> bytes:
    """The content of a file, whose checksum is verified.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another checksum.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.parent} has no {path.name}: expected a directory that nas-rlm export-model wrote"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(
            f"{path.name} is damaged or of another model: its sha256 differs from that in {CONFIG_FILE}"
        )
    return content


def _temperatures(saved: Mapping[str, Sequence[Any]], num_objectives: int) -> dict[str, tuple[float, ...]]:
    """The temperatures in a configuration file, checked to be positive, by search space."""
    temperatures = {space: tuple(map(float, values)) for space, values in saved.items()}
    is_complete = all(len(t) == num_objectives for t in temperatures.values()) and "" in temperatures
    if not is_complete or not all(0 < t < math.inf for own in temperatures.values() for t in own):
        raise ValueError("temperatures: expected a positive number for each objective, for '' and each space")
    return temperatures


def _session(session: Any, name: str, content: Mapping[str, bytes]) -> Any:
    """An onnxruntime session of the graph in the file `name`; `session` is `onnxruntime.InferenceSession`."""
    try:
        return session(content[name], providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime does not document its exceptions
        raise ValueError(f"onnxruntime cannot load {name}: {str(error).splitlines()[0]}") from None
