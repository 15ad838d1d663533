"""The parts of a model that a checkpoint stores, and the texts that its network encodes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch

from nas_rlm.data.genome import Genome, genome_features
from nas_rlm.model import checkpoint
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE, Batch, gather_predictions, make_batches, pad
from nas_rlm.model.checkpoint import AnyTokenizer, Checkpoint, Temperatures, TrainedOn, objective_temperatures
from nas_rlm.model.network import Memory, Network
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS
from nas_rlm.surrogates.ensemble.selection import SurrogateSelection
from nas_rlm.surrogates.registry import AnySurrogate, Surrogate, from_saved, uses_genome
from nas_rlm.surrogates.zero_label import AnyZeroLabelSurrogate
from nas_rlm.text.declarations import with_input_batch
from nas_rlm.text.tokenizer import UNKNOWN, encodable
from nas_rlm.utils import process_pool, torch_settings
from nas_rlm.utils.validation import as_list, check_model_objectives, listed
from search_spaces import SearchSpace

Item = TypeVar("Item")


@dataclass(repr=False)
class TrainedModel:
    """A network with its tokenizer, temperatures and surrogates.

    Args:
        network: the encoder-decoder.
        tokenizer: tokenizer of the network.
        trained_on: for each space, the number of rows and the objectives that the network was trained on.
        temperatures: for each space and objective, the divisor of the network's logits without surrogate,
            see `nas_rlm.surrogates.calibration`.
        surrogates: surrogates of each space; of several with the same objective, the last one predicts it.
        maximised: objectives that a search maximises although their kind is not, as their table declared.
        zero_label: surrogates of spaces without labels, which are not saved; see
            `nas_rlm.surrogates.ensemble.Ensemble.with_zero_label_surrogates`.
    """

    network: Network
    tokenizer: AnyTokenizer
    trained_on: Mapping[str, TrainedOn] = field(default_factory=dict)
    temperatures: Temperatures = field(default_factory=dict)
    surrogates: Mapping[str, Sequence[Surrogate]] = field(default_factory=dict)
    maximised: tuple[str, ...] = ()
    zero_label: Mapping[str, Sequence[AnyZeroLabelSurrogate]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the objectives and spaces in one line, since weights and labels are long."""
        spaces = [space for space in self.trained_on if space]
        of_spaces = f", spaces=[{listed(spaces)}]" if spaces else ""
        return f"{type(self).__name__}(objectives=[{listed(self.objectives)}]{of_spaces})"

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the objectives that the model can predict."""
        return self.network.config.objectives

    @property
    def fingerprint(self) -> str:
        """Hash of the weights, surrogates and temperatures; equal models have equal fingerprints."""
        digest, tensors = hashlib.sha256(), dict(self.network.state_dict())
        for space, surrogates in self.surrogates.items():
            tensors |= {
                f"{space}.{i}.{name}": tensor
                for i, surrogate in enumerate(surrogates)
                for name, tensor in surrogate.tensors().items()
            }
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        digest.update(json.dumps(self.temperatures, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Self:
        """Load a checkpoint.

        Args:
            name: a directory, or the name of a shipped model.

        Raises:
            FileNotFoundError: there is no such directory or shipped model.
            ValueError: a file of it is missing, damaged or belongs to another checkpoint.
        """
        with torch_settings.standard():
            saved = checkpoint.load(name, from_saved)
        return cls(
            *(saved.network, saved.tokenizer, saved.trained_on, saved.temperatures, saved.surrogates),
            saved.maximised,
        )

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write a checkpoint: half-precision weights, tokenizer, surrogates and configuration.

        Args:
            directory: directory of the checkpoint.
        """
        checkpoint.save(
            directory,
            Checkpoint(
                *(self.network, self.tokenizer, self.trained_on, self.temperatures, self.surrogates),
                self.maximised,
            ),
        )

    def check(self, objectives: Sequence[str]) -> None:
        """Check that objectives are distinct names that the model can predict.

        Raises:
            ValueError: an objective is repeated or unknown.
        """
        check_model_objectives(objectives, self.objectives)

    @property
    def selection(self) -> SurrogateSelection:
        """The surrogates of all spaces, from which those of one space are selected."""
        return SurrogateSelection(self.surrogates, self.trained_on, self.zero_label)

    def surrogates_of(self, space: str) -> list[AnySurrogate]:
        """Return the surrogates of a space, see `SurrogateSelection.of_space`."""
        return self.selection.of_space(space)

    @property
    def latencies_of_any_network(self) -> set[str]:
        """Names of the latencies that layer surrogates predict for networks of any family."""
        return {name for surrogate in self.selection.layer_surrogates for name in surrogate.objectives}

    def network_temperatures(self, space: str, objectives: Sequence[str]) -> list[float]:
        """Return the divisor of the network's logits for each objective.

        It is the network temperature of the space's surrogate, else the model's temperature for the space,
        else the mean over spaces, else 1.

        Args:
            space: name of the space.
            objectives: names of the objectives.
        """
        temperatures = objective_temperatures(self.temperatures, space, objectives)
        by_objective = self.selection.by_objective(space)
        for k, name in enumerate(objectives):
            if name in by_objective:
                own = by_objective[name].network_temperatures
                temperatures[k] = own.get(name, temperatures[k])
        return temperatures

    def genomes_of(self, space: SearchSpace[Any], architectures: Sequence[Any]) -> list[Genome]:
        """Return the genome features of architectures for predictions; none where no surrogate uses them.

        Args:
            space: the space.
            architectures: N architectures of the space.
        """
        is_used = uses_genome(self.surrogates_of(space.name))
        return [genome_features(space, architecture) for architecture in architectures if is_used]

    def with_objectives(self, names: Sequence[str], similar: Mapping[str, str] | None = None) -> Self:
        """Return a copy with additional objectives, which are not trained yet.

        Args:
            names: names of the additional objectives.
            similar: see `copy_for_training`.
        """
        copied = self.copy_for_training(tuple(dict.fromkeys([*self.objectives, *names])), similar=similar)
        copied.trained_on, copied.temperatures = self.trained_on, self.temperatures
        copied.surrogates, copied.maximised = self.surrogates, self.maximised
        return copied

    def copy_for_training(
        self,
        objectives: tuple[str, ...],
        max_numbers: int | None = None,
        similar: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a copy of network and tokenizer, without `trained_on`, temperatures and surrogates.

        Args:
            objectives: all objectives of the copy. The embedding of a new one is the mean over this model's
                objectives of the same kind; the kind of `latency/pixel3` is `latency`.
            max_numbers: maximum number of numbers in a sequence of the decoder; unchanged by default.
            similar: for a new objective, the objective of this model with whose embedding it starts instead.
        """
        config = self.network.config
        changed = replace(config, objectives=objectives, max_numbers=max_numbers or config.max_numbers)
        network = Network(changed, self.network.kinds.cpu().numpy())
        weights = dict(self.network.state_dict())
        embeddings = weights["tokens.weight"]
        rows = [embeddings[:NUM_DIGIT_TOKENS]]
        for objective in objectives:
            name = (similar or {}).get(objective, objective)
            same_kind = [o for o in config.objectives if o.split("/")[0] == name.split("/")[0]]
            ids = config.objective_ids([name] if name in config.objectives else same_kind)
            rows.append(embeddings[ids or slice(NUM_DIGIT_TOKENS, None)].mean(0, keepdim=True))
        network.load_state_dict({**weights, "tokens.weight": torch.cat(rows)})
        return type(self)(network, self.tokenizer)

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, truncated to the network's maximum length."""
        return self.full_token_ids(text)[: self.network.config.max_length]

    def full_token_ids(self, text: str) -> list[int]:
        """Return all token ids of a text; the unknown token for an empty one, if the network reads any."""
        if not self.network.config.reads_any_text:
            return self.tokenizer.encode(text)
        return self.tokenizer.encode(encodable(text)) or [UNKNOWN]

    def in_batches(
        self, texts: Sequence[str], batch_size: int = DEFAULT_BATCH_SIZE, input_batch: int | None = None
    ) -> list[Batch]:
        """Return the distinct texts with their token ids in batches of similar length.

        Args:
            texts: the texts.
            batch_size: number of texts in a batch.
            input_batch: number of inputs that the networks read at once in the token ids; by default as many
                as in the texts.
        """

        def encode(text: str) -> list[int]:
            return self.full_token_ids(with_input_batch(text, input_batch) if input_batch else text)

        return make_batches(texts, encode, self.network.config.max_length, batch_size)

    @torch.inference_mode()
    def decode_texts(
        self,
        texts: Sequence[str],
        decode: Callable[[Memory, list[str]], np.ndarray],
        shape: tuple[int, ...],
        batch_size: int,
        progress: bool,
        in_parallel: bool = True,
        input_batch: int | None = None,
    ) -> np.ndarray:
        """Encode each distinct text once, in batches of similar length, and apply a function to each batch.

        Args:
            texts: N texts.
            decode: function from B encoded texts and the B texts to float64 [B, *shape].
            shape: shape of one text's result.
            batch_size: number of texts in a batch.
            progress: show a progress bar.
            in_parallel: distribute batches over processes; not allowed where the result of a batch depends on
                the batches before it.
            input_batch: see `in_batches`.

        Returns:
            float64 [N, *shape].
        """
        texts = as_list(texts, "texts")
        batches = self.in_batches(texts, batch_size, input_batch)

        def decode_batch(batch: Batch) -> np.ndarray:
            ids = torch.from_numpy(pad([row for _, row in batch])).to(self.network.kinds.device)
            return decode(self.network.encode(ids), [text for text, _ in batch])

        results = self.map_in_processes(decode_batch, batches) if in_parallel else map(decode_batch, batches)
        return gather_predictions(texts, batches, results, shape, progress)

    def map_in_processes(
        self, function: Callable[[Item], np.ndarray], items: Sequence[Item], key: tuple[Hashable, ...] = ()
    ) -> Iterator[np.ndarray]:
        """Map a function over items, in several processes where the network is on the CPU.

        Args:
            function: function of an item.
            items: the items.
            key: see `nas_rlm.utils.process_pool.map_in_processes`.
        """
        is_on_cpu = self.network.kinds.device.type == "cpu"
        return process_pool.map_in_processes(function, items, key) if is_on_cpu else map(function, items)
