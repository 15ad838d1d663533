"""The network and its surrogates together: predictions and samples from text."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from tqdm import tqdm

import search_spaces
from nas_rlm.graph.cache import undisturbed
from nas_rlm.model import checkpoint, decoding
from nas_rlm.model.batching import MOST as BATCH
from nas_rlm.model.batching import Batch, gathered, in_batches, pad
from nas_rlm.model.checkpoint import Checkpoint, Reading, Seen, Temperatures, mean_temperatures
from nas_rlm.model.network import Memory, Network, version_of
from nas_rlm.model.numbers import TOKENS
from nas_rlm.surrogates.graph_surrogate import Knowing, beliefs, knowing, restored
from nas_rlm.text import from_architectures
from nas_rlm.utils import process_pool
from nas_rlm.utils.validation import check_names, hint, levels_of, listed
from search_spaces import SearchSpace

FEWEST, MOST = 32, 512  # architectures that a process takes at a time
Item = TypeVar("Item")


@dataclass
class Ensemble:
    """A regression language model: it reads the text of a network and writes its numbers.

    >>> import numpy as np, search_spaces
    >>> from nas_rlm import RLM
    >>> rlm = RLM.load("nas")
    >>> space = search_spaces.get("nasbench201")
    >>> archs = [space.sample(np.random.default_rng(0)) for _ in range(10)]
    >>> rlm.predict(space, archs, ["accuracy", "latency/pixel3"]).shape
    (10, 2)

    Args:
        network: the encoder-decoder.
        tokenizer: the pieces that it reads.
        trained_on: what the weights saw of each space.
        temperatures: what makes intervals hold as much as they say, see `nas_rlm.surrogates.calibration`.
        experts: for a space, what else tells of its networks, see `nas_rlm.surrogates.graph_surrogate`.
    """

    network: Network
    tokenizer: Reading
    trained_on: Mapping[str, Seen] = field(default_factory=dict)
    temperatures: Temperatures = field(default_factory=dict)
    experts: Mapping[str, Sequence[Knowing]] = field(default_factory=dict)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The numbers that the model can be asked for."""
        return self.network.config.objectives

    @property
    def fingerprint(self) -> str:
        """Of all that tells its predictions from those of another model."""
        digest, tensors = hashlib.sha256(), dict(self.network.state_dict())
        for space, known in self.experts.items():
            tensors |= {
                f"{space}.{i}.{k}": t for i, one in enumerate(known) for k, t in one.tensors().items()
            }
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        digest.update(json.dumps(self.temperatures, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Self:
        """A checkpoint: a directory, or the name of a shipped model.

        Raises:
            FileNotFoundError: no such directory or shipped model.
            ValueError: a file of it is missing, damaged or belongs to another checkpoint.
        """
        saved = checkpoint.load(name, restored)
        return cls(saved.network, saved.tokenizer, saved.trained_on, saved.temperatures, saved.surrogates)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the checkpoint: half-precision weights, tokenizer and, last, the configuration."""
        checkpoint.save(
            directory,
            Checkpoint(self.network, self.tokenizer, self.trained_on, self.temperatures, self.experts),
        )

    def predict(
        self,
        space: SearchSpace[Any] | str,
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = BATCH,
        progress: bool = False,
    ) -> np.ndarray:
        """Predict numbers of architectures, each different one once.

        Where the processor computes in bfloat16, the last digit of a number can depend on the batch it is in.
        As many processes share the batches as torch has threads; that changes no number.

        Args:
            space: a search space or its name.
            architectures: N of its architectures, or their strings.
            objectives: K different names, each told by itself; `sample` tells them jointly.
            quantiles: Q levels of the model's own distribution; None for the median alone.
            batch_size: texts a batch.
            progress: show a bar.

        Returns:
            float64 [N, K] medians, or [N, K, Q].

        Raises:
            ValueError: an unknown space or objective, or an architecture that is not of the space.
        """
        self.check(objectives)
        levels_of(quantiles)
        known, parsed = self._parsed(space, architectures, objectives)
        names = [str(architecture) for architecture in parsed]
        different = dict(zip(names, parsed, strict=True))
        order = {name: place for place, name in enumerate(different)}
        rest, size = list(different.values()), pieces_of(len(different))
        pieces = [rest[start : start + size] for start in range(0, max(1, len(rest)), size)]
        found = []
        with undisturbed(), tqdm(total=len(rest), desc="predict", unit="net", disable=not progress) as bar:
            for values in self.in_pieces(known, pieces, objectives, quantiles, batch_size):
                found.append(values)
                bar.update(len(values))
        return np.concatenate(found)[[order[name] for name in names]]

    def in_pieces(
        self,
        space: SearchSpace[Any],
        pieces: Sequence[Sequence[Any]],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None,
        batch_size: int,
    ) -> Iterator[np.ndarray]:
        """Predictions of pieces of different architectures, one after the other; see `predict`."""

        def told(piece: Sequence[Any]) -> np.ndarray:
            texts = from_architectures(space, piece)
            return self.predict_text(texts, objectives, quantiles, batch_size, space=space.name)

        asked = tuple(objectives), None if quantiles is None else tuple(quantiles), batch_size
        key = id(self), id(space), *asked, version_of(self.network.parameters())
        return self._mapped(told, pieces, key)

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = BATCH,
        progress: bool = False,
        space: str = "",
    ) -> np.ndarray:
        """Predict numbers of texts; otherwise as `predict`.

        Args:
            texts: N texts.
            objectives: K names.
            quantiles: as in `predict`.
            batch_size: texts a batch.
            progress: show a bar.
            space: whose temperatures and experts count; by default the means over the spaces that have
                temperatures, and no experts.
        """
        self.check(objectives)
        levels = levels_of(quantiles)
        temperatures = self.temperatures_of(space, objectives)

        def decode(memory: Memory, read: list[str]) -> np.ndarray:
            held = beliefs(self.experts.get(space, ()), read, objectives)
            return decoding.quantile(self.network, memory, objectives, levels, temperatures, held)

        found = self.decode_texts(texts, decode, (len(objectives), len(levels)), batch_size, progress)
        return found if quantiles is not None else found[:, :, 0]

    def sample(
        self,
        space: SearchSpace[Any] | str,
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Joint draws from the model's distribution over the objectives of each architecture.

        Accuracy is written first, and each number is conditioned on it and on the nearest before it.

        Returns:
            float64 [N, num_samples, K].
        """
        self.check(objectives)
        known, parsed = self._parsed(space, architectures, objectives)
        with undisturbed():
            texts = from_architectures(known, parsed)
            return self.sample_text(texts, objectives, num_samples, seed, space=known.name)

    def sample_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
        progress: bool = False,
        space: str = "",
    ) -> np.ndarray:
        """Joint draws for texts; otherwise as `sample`, and `space` as in `predict_text`."""
        self.check(objectives)
        if num_samples < 1:
            raise ValueError(f"{num_samples} samples: expected at least 1")
        generator = torch.Generator(self.network.kinds.device).manual_seed(int(seed))
        order = self._order(objectives)
        temperatures = self.temperatures_of(space, order)

        def decode(memory: Memory, read: list[str]) -> np.ndarray:
            held = beliefs(self.experts.get(space, ()), read, order)
            return decoding.sample(self.network, memory, order, num_samples, generator, temperatures, held)

        shape = (num_samples, len(objectives))
        found = self.decode_texts(texts, decode, shape, BATCH, progress, is_shared=False)
        return found[:, :, [order.index(name) for name in objectives]]

    def temperatures_of(self, space: str, objectives: Sequence[str]) -> list[float]:
        """The network's temperature for each objective.

        It is what the space's expert says, the space's own, the mean of those that are known, or 1.
        """
        own = dict(self.temperatures.get(space, {}))
        for name, one in knowing(self.experts.get(space, ())).items():
            if name in one.beside:
                own[name] = one.beside[name]
        return mean_temperatures({**self.temperatures, space: own}, space, objectives)

    def with_objectives(self, names: Sequence[str], like: Mapping[str, str] | None = None) -> Self:
        """A copy that knows more objectives, see `starting`."""
        copied = self.starting(tuple(dict.fromkeys([*self.objectives, *names])), like=like)
        copied.trained_on, copied.temperatures = self.trained_on, self.temperatures
        copied.experts = self.experts
        return copied

    def starting(
        self,
        objectives: tuple[str, ...],
        numbers: int | None = None,
        like: Mapping[str, str] | None = None,
    ) -> Self:
        """A copy of the network for a training of its own, which has seen nothing.

        Args:
            objectives: all that it is to know; the tokens of new ones start at the mean of those of their
                kind.
            numbers: how many the copy is to write in one sequence; by default as many as before.
            like: for a new objective a known one, at whose token it starts instead.
        """
        config = self.network.config
        changed = replace(config, objectives=objectives, numbers=numbers or config.numbers)
        network = Network(changed, self.network.kinds.cpu().numpy())
        weights = dict(self.network.state_dict())
        tokens = weights["tokens.weight"]
        rows = [tokens[:TOKENS]]
        for objective in objectives:
            name = (like or {}).get(objective, objective)
            kind = [i for i, o in enumerate(config.objectives) if o.split("/")[0] == name.split("/")[0]]
            alike = config.objective_ids([name]) if name in config.objectives else [TOKENS + i for i in kind]
            rows.append(tokens[alike or slice(TOKENS, None)].mean(0, keepdim=True))
        network.load_state_dict({**weights, "tokens.weight": torch.cat(rows)})
        return type(self)(network, self.tokenizer)

    def token_ids(self, text: str) -> list[int]:
        """The tokens of a text, cropped to what the network reads."""
        return self.tokenizer.encode(text)[: self.network.config.max_length]

    def _parsed(
        self, space: SearchSpace[Any] | str, architectures: Sequence[Any], objectives: Sequence[str]
    ) -> tuple[SearchSpace[Any], list[Any]]:
        """A space and its architectures, of which some may have been strings."""
        architectures = listed(architectures, "architectures")
        known = search_spaces.get(space) if isinstance(space, str) else space
        self._warn_of_unseen(known.name, objectives)
        return known, [known.parse(a) if isinstance(a, str) else known.checked(a) for a in architectures]

    def check_space(self, space: str, objectives: Sequence[str]) -> None:
        """Refuse the name of a space that nobody knows, and warn of guesses; see `predict_onnx`."""
        known = dict.fromkeys([*self.trained_on, *search_spaces.names()])
        if space and space not in known:
            raise ValueError(f"there is no space {space!r}; {hint(space, known)}")
        if space:
            self._warn_of_unseen(space, objectives)
        else:
            warnings.warn(
                "no space is named: what the model writes of networks unlike those it has seen is a guess",
                stacklevel=3,
            )

    def _warn_of_unseen(self, space: str, objectives: Sequence[str]) -> None:
        seen = self.trained_on.get(space, Seen(0, ()))
        unseen = [name for name in objectives if name not in seen.objectives]
        if self.trained_on and unseen:
            warnings.warn(
                f"the model has never seen {', '.join(unseen)} of {space}: what it writes there is a guess,"
                " fine-tune it on measurements of your own",
                stacklevel=4,
            )

    def _order(self, objectives: Sequence[str]) -> list[str]:
        """The order in which the model writes objectives: accuracy first, as it learnt them."""
        return sorted(objectives, key=lambda name: (name != "accuracy", self.objectives.index(name)))

    def check(self, objectives: Sequence[str]) -> None:
        """Refuse objectives that the model does not know, and repeated ones."""
        check_names(objectives)
        for name in objectives:
            if name not in self.objectives:
                raise ValueError(
                    f"the model does not know the objective {name!r}; {hint(name, self.objectives)}"
                )

    @torch.inference_mode()
    def decode_texts(
        self,
        texts: Sequence[str],
        decode: Callable[[Memory, list[str]], np.ndarray],
        shape: tuple[int, ...],
        batch_size: int,
        progress: bool,
        is_shared: bool = True,
    ) -> np.ndarray:
        """Encode each distinct text once, in batches of similar length, and decode it by a given function.

        Args:
            texts: N texts.
            decode: from B encoded texts, and the texts, to float64 [B, *shape].
            shape: of one text's numbers.
            batch_size: texts a batch.
            progress: show a bar.
            is_shared: several processes may decode, each its batches; not where one depends on another.

        Returns:
            float64 [N, *shape].
        """
        texts = listed(texts, "texts")
        batches = self.in_batches(texts, batch_size)

        def decoded(batch: Batch) -> np.ndarray:
            ids = torch.from_numpy(pad([row for _, row in batch])).to(self.network.kinds.device)
            return decode(self.network.encode(ids), [text for text, _ in batch])

        values = self._mapped(decoded, batches) if is_shared else map(decoded, batches)
        return gathered(texts, batches, values, shape, progress)

    def _mapped(
        self, work: Callable[[Item], np.ndarray], items: Sequence[Item], key: tuple[Hashable, ...] = ()
    ) -> Iterator[np.ndarray]:
        """What work finds of each item, on a processor by several processes, see `nas_rlm.utils.process_pool`."""
        is_here = self.network.kinds.device.type == "cpu"
        return process_pool.mapped(work, items, key) if is_here else map(work, items)

    def in_batches(self, texts: Sequence[str], batch_size: int = BATCH) -> list[Batch]:
        """Each distinct text with its tokens, in batches of similar length, see `nas_rlm.model.batching`."""
        return in_batches(texts, self.tokenizer.encode, self.network.config.max_length, batch_size)


def pieces_of(count: int) -> int:
    """In pieces of how many architectures so many are predicted, whoever takes a piece.

    Pieces are alike, and 2, 4 or a multiple of 8, so that as many processes are done at the same time.
    """
    parts = next((parts for parts in (8, 4, 2) if count >= parts * FEWEST), 1)
    rounds = max(1, -(-count // (parts * MOST)))
    return max(1, -(-count // (parts * rounds)))
