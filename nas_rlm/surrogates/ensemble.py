"""Ensemble of the network and its surrogates: predictions and samples from text."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np
import torch

import search_spaces
from nas_rlm.data.genome import Genome, genome_features
from nas_rlm.data.objective_kinds import depends_on_task, is_accuracy, is_of_training
from nas_rlm.graph.cache import gc_paused
from nas_rlm.model import checkpoint, conditioning, decoding
from nas_rlm.model.batching import (
    DEFAULT_BATCH_SIZE,
    Batch,
    chunk_size,
    gather_predictions,
    make_batches,
    named_texts,
    names_of_texts,
    pad,
)
from nas_rlm.model.checkpoint import AnyTokenizer, Checkpoint, Temperatures, TrainedOn, objective_temperatures
from nas_rlm.model.network import Memory, Network, weight_versions
from nas_rlm.model.numbers import NUM_DIGIT_TOKENS
from nas_rlm.surrogates.conditional import Conditional, conditional_surrogate
from nas_rlm.surrogates.features import other_batch
from nas_rlm.surrogates.given_numbers import Given, check_given, check_range, rows_by_given
from nas_rlm.surrogates.graph_surrogate import ACCURACY, GraphSurrogate
from nas_rlm.surrogates.latency_surrogate import LatencySurrogate
from nas_rlm.surrogates.layer_surrogate import LayerSurrogate
from nas_rlm.surrogates.network_sizes import NetworkSizes, warn_of_other_sizes
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK, PredictiveDistribution
from nas_rlm.surrogates.registry import (
    AnySurrogate,
    NoveltyWarning,
    Surrogate,
    from_saved,
    graph_surrogates,
    novelties,
    predictive_distributions,
    surrogate_by_objective,
    transferable,
    uses_genome,
    warn_of_novel_networks,
)
from nas_rlm.surrogates.zero_label import (
    ZeroLabelSurrogate,
    can_transfer,
    source_labels,
    zero_label_messages,
    zero_label_surrogates,
)
from nas_rlm.text import from_architectures
from nas_rlm.text.declarations import reads_tokens, with_input_batch
from nas_rlm.utils import process_pool
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import as_list, check_model_objectives, quantile_levels, suggest
from search_spaces import LANGUAGE_MODELLING, SearchSpace

Item = TypeVar("Item")
DistributionsOf = Callable[
    [Sequence[str], Sequence[str]], tuple[dict[str, np.ndarray], list[PredictiveDistribution | None]]
]


@dataclass
class Ensemble:
    """A network with its tokenizer, temperatures and surrogates; see `nas_rlm.rlm.RLM`.

    Args:
        network: the encoder-decoder.
        tokenizer: tokenizer of the network.
        trained_on: for each space, the number of rows and the objectives that the network was trained on.
        temperatures: for each space and objective, the divisor of the network's logits without surrogate,
            see `nas_rlm.surrogates.calibration`.
        surrogates: surrogates of each space; of several with the same objective, the last one predicts it.
        maximised: objectives that a search maximises although their kind is not, as their table declared.
        zero_label: surrogates of spaces without labels, which are not saved; see
            `with_zero_label_surrogates`.
    """

    network: Network
    tokenizer: AnyTokenizer
    trained_on: Mapping[str, TrainedOn] = field(default_factory=dict)
    temperatures: Temperatures = field(default_factory=dict)
    surrogates: Mapping[str, Sequence[Surrogate]] = field(default_factory=dict)
    maximised: tuple[str, ...] = ()
    zero_label: Mapping[str, Sequence[ZeroLabelSurrogate]] = field(default_factory=dict)

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

    def predict(
        self,
        space: SearchSpace[Any] | str,
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
        given: Given | None = None,
    ) -> np.ndarray:
        """Predict objectives of architectures; each distinct architecture is computed once.

        On processors that compute in bfloat16, the last digit can depend on the other texts of a batch.
        Batches are shared among as many processes as torch has threads, which does not change the result.

        Args:
            space: a search space or its name.
            architectures: N architectures of the space, or their strings.
            objectives: K distinct names; their marginal distributions are predicted. For the joint
                distribution see `sample`.
            quantiles: Q levels between 0 and 1; None for the median only.
            batch_size: number of texts in a batch.
            progress: show a progress bar.
            given: measured numbers by name, on which the predictions are conditioned, such as
                `{"accuracy/cifar10_4ep": 61.5}`: one for all architectures, or N with NaN where one is
                missing. The surrogate of an objective needs labels of both for some networks.

        Returns:
            float64 [N, K] medians, or [N, K, Q] quantiles.

        Raises:
            ValueError: the space or an objective is unknown, an architecture is not of the space, or a given
                number is unknown, out of range, queried as well, or of another length than the architectures.

        Warns:
            UserWarning: the model was not trained on an objective in this space.
            NoveltyWarning: an architecture is unlike all labelled networks of a latency.
        """
        self.check(objectives)
        levels = quantile_levels(quantiles)
        search_space, parsed = self._parse(space, architectures, objectives)
        model = self.with_zero_label_surrogates(search_space, objectives)
        names = [str(architecture) for architecture in parsed]
        if given is not None:
            with gc_paused(), named_texts(names):
                texts = from_architectures(search_space, parsed)
                genomes = model.genomes_of(search_space, parsed)
                return model.predict_text(
                    texts, objectives, quantiles, batch_size, progress, search_space.name, given, genomes
                )
        distinct = dict(zip(names, parsed, strict=True))
        index = {name: i for i, name in enumerate(distinct)}
        unique, size = list(distinct.values()), chunk_size(len(distinct))
        chunks = [unique[start : start + size] for start in range(0, max(1, len(unique)), size)]
        predictions = []
        with (
            gc_paused(),
            progress_bar(total=len(unique), desc="predict", unit="net", disable=not progress) as bar,
        ):
            for chunk in model.predict_chunks(search_space, chunks, objectives, levels, batch_size):
                predictions.append(chunk)
                bar.update(len(chunk))
        values = np.concatenate(predictions)
        warn_of_novel_networks(values[:, :, -1], objectives, [*distinct])
        values = values[[index[name] for name in names]]
        return values[:, :, :-1] if quantiles is not None else values[:, :, 0]

    def predict_chunks(
        self,
        space: SearchSpace[Any],
        chunks: Sequence[Sequence[Any]],
        objectives: Sequence[str],
        levels: Sequence[float],
        batch_size: int,
    ) -> Iterator[np.ndarray]:
        """Yield the predictions for each chunk of distinct architectures.

        Args:
            space: the search space.
            chunks: the chunks.
            objectives: K distinct names.
            levels: Q quantile levels.
            batch_size: number of texts in a batch.

        Yields:
            Quantiles and novelties, see `predict_with_novelties`.
        """

        def predict_chunk(chunk: Sequence[Any]) -> np.ndarray:
            texts, genomes = from_architectures(space, chunk), self.genomes_of(space, chunk)
            return self.predict_with_novelties(
                texts, objectives, levels, batch_size, space=space.name, genomes=genomes
            )

        arguments = tuple(objectives), tuple(levels), batch_size
        key = id(self), id(space), *arguments, weight_versions(self.network.parameters())
        return self._map(predict_chunk, chunks, key)

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
        space: str = "",
        given: Given | None = None,
        genomes: Sequence[Genome] = (),
    ) -> np.ndarray:
        """Predict objectives of texts.

        Args:
            texts: N texts.
            objectives: as in `predict`.
            quantiles: as in `predict`.
            batch_size: number of texts in a batch.
            progress: show a progress bar.
            space: name of the space whose temperatures and surrogates are used; by default temperatures are
                means over the spaces, and surrogates are those of networks without a space.
            given: as in `predict`.
            genomes: genomes of the N networks, see `genomes_of`; if empty, surrogates do without them.

        Returns:
            As `predict`.

        Raises:
            ValueError: an objective is unknown, a text is empty, or as `predict` for given numbers.

        Warns:
            NoveltyWarning: a text is unlike all labelled networks of a latency.
            UserWarning: a text reads other images, or has other classes, than all labelled networks of an
                accuracy.
        """
        texts, levels = as_list(texts, "texts"), quantile_levels(quantiles)
        self.check(objectives)
        numbers = check_given(given, len(texts), objectives, self.objectives)
        values = np.empty((len(texts), len(objectives), len(levels) + 1))
        check_range(numbers, self._labels(space, objectives))
        groups = rows_by_given(texts, numbers)
        for rows, names in groups:
            of_rows = {name: numbers[name][rows] for name in names}
            own = [genomes[k] for k in rows if genomes]
            values[rows] = self.predict_with_novelties(
                [texts[i] for i in rows], objectives, levels, batch_size, progress, space, of_rows, own
            )
        warn_of_novel_networks(values[:, :, -1], objectives, names_of_texts(len(texts)))
        warn_of_other_sizes(self._labelled_sizes(space, objectives), texts, names_of_texts(len(texts)))
        return values[:, :, :-1] if quantiles is not None else values[:, :, 0]

    def predict_with_novelties(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        levels: Sequence[float],
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
        space: str = "",
        given: Mapping[str, np.ndarray] | None = None,
        genomes: Sequence[Genome] = (),
    ) -> np.ndarray:
        """Return quantiles of objectives of texts, and how unlike the labelled networks the texts are.

        Args:
            texts: N texts.
            objectives: K distinct names.
            levels: Q quantile levels.
            batch_size: number of texts in a batch.
            progress: show a progress bar.
            space: name of the space, see `predict_text`.
            given: numbers that all texts have by name, float64 [N]; with them, texts are distinct.
            genomes: genomes of the N networks, see `predict_text`.

        Returns:
            float64 [N, K, Q + 1]: the quantiles, and last the novelties, see
            `nas_rlm.surrogates.registry.novelties`.

        Raises:
            ValueError: an objective is unknown, or a text is empty.
        """
        self.check(objectives)
        self._check_surrogates(space, objectives)
        texts, given = as_list(texts, "texts"), given or {}
        training_batch = other_batch(space, texts, objectives)
        distributions_of = self._distributions_of_batches(space, texts, objectives, given, genomes)
        temperatures = self.network_temperatures(space, objectives)
        by_surrogate = [k for k, t in enumerate(temperatures) if t >= WITHOUT_NETWORK]
        by_network = [k for k in range(len(objectives)) if k not in by_surrogate]

        def decode(columns: Sequence[int], memory: Memory, batch: list[str]) -> np.ndarray:
            names = [objectives[k] for k in columns]
            of_batch, distributions = distributions_of(batch, names)
            network = [temperatures[k] for k in columns]
            arguments = self.network, memory, names, levels
            if given:
                values = conditioning.quantile(*arguments, of_batch, network, distributions)
            else:
                values = decoding.quantile(*arguments, network, distributions)
            return _with_novelties(values, distributions)

        predictions = np.empty((len(texts), len(objectives), len(levels) + 1))
        learnt = [k for k in by_network if training_batch and is_of_training(objectives[k])]
        rest = [k for k in by_network if k not in learnt]
        for columns, read in [(learnt, training_batch), (rest, None)] if learnt else [(rest, None)]:
            if columns or not objectives:
                shape = len(columns), len(levels) + 1
                predictions[:, columns] = self.decode_texts(
                    texts, partial(decode, columns), shape, batch_size, progress, input_batch=read
                )
        if by_surrogate:
            names_of_surrogates = [objectives[k] for k in by_surrogate]
            predictions[:, by_surrogate] = self._quantiles_of_surrogates(
                texts, names_of_surrogates, levels, progress, distributions_of
            )
        return predictions

    def _distributions_of_batches(
        self,
        space: str,
        texts: Sequence[str],
        objectives: Sequence[str],
        given: Mapping[str, np.ndarray],
        genomes: Sequence[Genome],
    ) -> DistributionsOf:
        """Return a function from some of the texts and objectives to what surrogates predict.

        It returns the given numbers of these texts, and the distributions of these objectives.
        """
        conditional = self._conditional_surrogates(space, objectives, tuple(given))
        training_batch = other_batch(space, texts, objectives)
        index = {text: i for i, text in enumerate(texts)} if given else {}
        genome_of = dict(zip(texts, genomes, strict=bool(genomes)))

        def distributions_of(
            batch: Sequence[str], names: Sequence[str]
        ) -> tuple[dict[str, np.ndarray], list[PredictiveDistribution | None]]:
            of_batch = {name: values[[index[text] for text in batch]] for name, values in given.items()}
            surrogates = self.surrogates_of(space)
            return of_batch, predictive_distributions(
                surrogates, batch, names, conditional, of_batch, genome_of, training_batch
            )

        return distributions_of

    def _conditional_surrogates(
        self, space: str, objectives: Sequence[str], given: tuple[str, ...]
    ) -> dict[str, Conditional]:
        """Return the conditional surrogates of objectives that have a surrogate; each is fitted once.

        Raises:
            ValueError: a surrogate cannot be conditioned on the given numbers.
        """
        found: dict[str, Conditional] = {}
        by_objective = surrogate_by_objective(self.surrogates_of(space)) if given else {}
        for name in objectives:
            surrogate = by_objective.get(name)
            if surrogate is None:
                continue
            if not isinstance(surrogate, GraphSurrogate | LatencySurrogate):
                raise ValueError(
                    f"{name} of {space or 'networks without a space'} cannot be predicted from"
                    f" {', '.join(given)}: fine-tune the model on a table of the space that has both"
                )
            key = id(surrogate), name, given
            if key not in self._fitted_conditional:  # with the surrogate, whose id must stay its own
                fitted = conditional_surrogate(surrogate, name, given)
                self._fitted_conditional[key] = surrogate, fitted
            found[name] = self._fitted_conditional[key][1]
        return found

    @cached_property
    def _fitted_conditional(self) -> dict[Hashable, tuple[Surrogate, Conditional]]:
        return {}

    def _quantiles_of_surrogates(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        levels: Sequence[float],
        progress: bool,
        distributions_of: DistributionsOf,
    ) -> np.ndarray:
        """Return quantiles and novelties of objectives that the network does not predict."""
        distinct = list(dict.fromkeys(texts))
        index = {text: i for i, text in enumerate(distinct)}
        size = chunk_size(len(distinct))
        chunks = [distinct[start : start + size] for start in range(0, len(distinct), size)]

        def predict_chunk(chunk: Sequence[str]) -> np.ndarray:
            _, found = distributions_of(chunk, objectives)
            values = np.stack([d.quantiles(levels) for d in found if d is not None], 1)
            return _with_novelties(values, found)

        empty = np.empty((0, len(objectives), len(levels) + 1))
        with progress_bar(total=len(distinct), desc="predict", unit="net", disable=not progress) as bar:
            results = [empty]
            for result in self._map(predict_chunk, chunks):
                results.append(result)
                bar.update(len(result))
        return np.concatenate(results)[[index[text] for text in texts]]

    def sample(
        self,
        space: SearchSpace[Any] | str,
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
        given: Given | None = None,
    ) -> np.ndarray:
        """Draw from the joint distribution of the objectives of each architecture.

        Accuracy is decoded first. Each objective is conditioned on accuracy and on the objectives decoded
        just before it.

        Args:
            space: a search space or its name.
            architectures: N architectures of the space, or their strings.
            objectives: K distinct names.
            num_samples: S draws for each architecture.
            seed: seed of the draws.
            given: as in `predict`.

        Returns:
            float64 [N, S, K].

        Raises:
            ValueError: as for `predict`, or num_samples is below 1.
        """
        self.check(objectives)
        search_space, parsed = self._parse(space, architectures, objectives)
        with gc_paused():
            texts, genomes = from_architectures(search_space, parsed), self.genomes_of(search_space, parsed)
            model = self.with_zero_label_surrogates(search_space, objectives)
            with named_texts([str(architecture) for architecture in parsed]):
                return model.sample_text(
                    texts,
                    objectives,
                    num_samples,
                    seed,
                    space=search_space.name,
                    given=given,
                    genomes=genomes,
                )

    def sample_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
        progress: bool = False,
        space: str = "",
        given: Given | None = None,
        genomes: Sequence[Genome] = (),
    ) -> np.ndarray:
        """Draw from the joint distribution of the objectives of each text.

        Args:
            texts: N texts.
            objectives: as in `sample`.
            num_samples: as in `sample`.
            seed: as in `sample`.
            progress: show a progress bar.
            space: as in `predict_text`.
            given: as in `predict`.
            genomes: as in `predict_text`.

        Returns:
            float64 [N, S, K].

        Warns:
            NoveltyWarning: a text is unlike all labelled networks of a latency.
            UserWarning: a text reads other images, or has other classes, than all labelled networks of an
                accuracy.
        """
        self.check(objectives)
        if num_samples < 1:
            raise ValueError(f"num_samples is {num_samples}: expected at least 1")
        generator = torch.Generator(self.network.kinds.device).manual_seed(int(seed))
        order = self._decoding_order(objectives)
        texts = as_list(texts, "texts")
        numbers = check_given(given, len(texts), objectives, self.objectives)
        check_range(numbers, self._labels(space, objectives))
        groups = rows_by_given(texts, numbers)
        samples = np.empty((len(texts), num_samples + 1, len(objectives)))
        for rows, names in groups:
            of_rows = {name: numbers[name][rows] for name in names}
            of_group = [texts[i] for i in rows]
            own = [genomes[k] for k in rows if genomes]
            samples[rows] = self._samples(
                of_group, order, num_samples, generator, progress, space, of_rows, own
            )
        warn_of_novel_networks(samples[:, -1], order, names_of_texts(len(samples)))
        warn_of_other_sizes(self._labelled_sizes(space, objectives), texts, names_of_texts(len(texts)))
        return samples[:, :-1, [order.index(name) for name in objectives]]

    def _samples(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        num_samples: int,
        generator: torch.Generator,
        progress: bool,
        space: str,
        given: Mapping[str, np.ndarray],
        genomes: Sequence[Genome],
    ) -> np.ndarray:
        """Return samples and last the novelties [N, S + 1, K] of objectives in decoding order."""
        self._check_surrogates(space, objectives)
        training_batch = other_batch(space, texts, objectives)
        distributions_of = self._distributions_of_batches(space, texts, objectives, given, genomes)
        temperatures = self.network_temperatures(space, objectives)

        def decode(memory: Memory, batch: list[str]) -> np.ndarray:
            of_batch, distributions = distributions_of(batch, objectives)
            arguments = self.network, memory, objectives, num_samples, generator
            if given:
                samples = conditioning.sample(*arguments, of_batch, temperatures, distributions)
            else:
                samples = decoding.sample(*arguments, temperatures, distributions)
            return np.concatenate([samples, novelties(distributions, len(batch))[:, None]], 1)

        shape = (num_samples + 1, len(objectives))
        is_learnt = all(map(is_of_training, objectives))  # latencies need the batch that the network has
        read = training_batch if is_learnt else None
        arguments = texts, decode, shape, DEFAULT_BATCH_SIZE, progress
        return self.decode_texts(*arguments, in_parallel=False, input_batch=read)

    def genomes_of(self, space: SearchSpace[Any], architectures: Sequence[Any]) -> list[Genome]:
        """Return the genome features of architectures for `predict_text`; none where no surrogate uses them.

        Args:
            space: the space.
            architectures: N architectures of the space.
        """
        is_used = uses_genome(self.surrogates_of(space.name))
        return [genome_features(space, architecture) for architecture in architectures if is_used]

    def network_temperatures(self, space: str, objectives: Sequence[str]) -> list[float]:
        """Return the divisor of the network's logits for each objective.

        It is the network temperature of the space's surrogate, else the model's temperature for the space,
        else the mean over spaces, else 1.

        Args:
            space: name of the space.
            objectives: names of the objectives.
        """
        temperatures = objective_temperatures(self.temperatures, space, objectives)
        by_objective = surrogate_by_objective(self.surrogates_of(space))
        for k, name in enumerate(objectives):
            if name in by_objective:
                own = by_objective[name].network_temperatures
                temperatures[k] = own.get(name, temperatures[k])
        return temperatures

    def _check_surrogates(self, space: str, objectives: Sequence[str]) -> None:
        """Refuse objectives that the network has not learnt, where no surrogate predicts them.

        Raises:
            ValueError: an objective was learnt by surrogates of other spaces alone.
        """
        known = surrogate_by_objective(self.surrogates_of(space))
        for name in objectives:
            found = {
                other: surrogate.network_temperatures.get(name, 1.0)
                for other, group in self.surrogates.items()
                for surrogate in group
                if name in surrogate.objectives
            }
            if name not in known and found and min(found.values()) >= WITHOUT_NETWORK:
                raise ValueError(
                    f"{name} cannot be predicted for {space or 'networks without a space'}: the model"
                    f" learnt it for {', '.join(sorted(found))} alone"
                )

    def _labels(self, space: str, objectives: Sequence[str]) -> dict[str, np.ndarray]:
        """Return all labels by name, float64 [M], that the surrogates of some objectives store."""
        by_objective = surrogate_by_objective(self.surrogates_of(space))
        selected = [by_objective.get(name) for name in objectives]
        known = [s.labels for s in selected if isinstance(s, GraphSurrogate | LatencySurrogate)]
        return {name: values for labels in known for name, values in labels.items()}

    def _labelled_sizes(self, space: str, objectives: Sequence[str]) -> dict[str, NetworkSizes]:
        """Return the sizes of the labelled networks of objectives of training, where they are known."""
        by_objective = surrogate_by_objective(self.surrogates_of(space))
        selected = {name: by_objective.get(name) for name in objectives if is_of_training(name)}
        return {n: s.sizes for n, s in selected.items() if isinstance(s, GraphSurrogate) and s.sizes}

    def surrogates_of(self, space: str) -> list[AnySurrogate]:
        """Return the surrogates of a space; of several with the same objective, the last one predicts it.

        Layer surrogates, and sums of costs that were fitted to another space, predict networks of every space
        that has no surrogate of its own for a latency. Networks without a space are predicted by the graph
        surrogates of tables of files.

        Args:
            space: name of the space.
        """
        return [*self.zero_label.get(space, ()), *self._saved_surrogates_of(space)]

    def _saved_surrogates_of(self, space: str) -> list[Surrogate]:
        """Return the surrogates of a space without those for spaces without labels."""
        known = self.trained_on.get(space, TrainedOn(0, ())).objectives
        others = [s for other, group in self.surrogates.items() if other != space for s in group]
        sums = [
            s.for_other_networks
            for s in others
            if isinstance(s, LatencySurrogate) and s.graph_features.costs and s.objective not in known
        ]
        files = [] if space else self._surrogates_of_files
        return [*sums, *self._layer_surrogates, *files, *self.surrogates.get(space, ())]

    @property
    def latencies_of_any_network(self) -> set[str]:
        """Names of the latencies that layer surrogates predict for networks of any family."""
        return {name for surrogate in self._layer_surrogates for name in surrogate.objectives}

    @property
    def _layer_surrogates(self) -> list[LayerSurrogate]:
        """Layer surrogates of all spaces."""
        return [s for group in self.surrogates.values() for s in group if isinstance(s, LayerSurrogate)]

    @property
    def _surrogates_of_files(self) -> list[GraphSurrogate]:
        """Graph surrogates of tables of files, whose networks belong to no registered space."""
        registered = {*search_spaces.names()}
        by_space = graph_surrogates(self.surrogates)
        return [s for space, group in by_space.items() if space not in registered for s in group]

    def with_zero_label_surrogates(self, space: SearchSpace[Any] | None, objectives: Sequence[str]) -> Self:
        """Return a model that predicts objectives without labels in a space by what transfers to it.

        The result has the same network and surrogates. It is computed once for a space and objectives.

        Args:
            space: the space; None for networks that need not be of one space.
            objectives: the objectives.

        Warns:
            UserWarning: the model has no labels of an objective in the space.
        """
        name = space.name if space else ""
        missing = tuple(self._transferred(name, objectives))
        if not missing:
            return self
        key = name, id(type(space)), missing, tuple((s, len(group)) for s, group in self.surrogates.items())
        if key not in self._models_without_labels:
            sources = transferable(graph_surrogates(self.surrogates), name)
            found = zero_label_surrogates(space, missing, sources)
            model = copy.copy(self)
            model.zero_label = {**self.zero_label, name: found}
            self._models_without_labels[key] = model
        model = self._models_without_labels[key]
        location = search_spaces.location_of(space) if space else ""
        for message in zero_label_messages(name, model.zero_label[name], location):
            warnings.warn(message, stacklevel=3)
        return model

    def transferred_to(self, space: str, objectives: Sequence[str]) -> Self:
        """Return a model for texts of a space, see `with_zero_label_surrogates`.

        Args:
            space: name of the space; empty for networks that need not be of one space. For one that is not
                registered, the model itself is returned.
            objectives: the objectives.

        Warns:
            UserWarning: the model has no labels of an objective in the space.
        """
        if space and space not in search_spaces.names():
            return self
        return self.with_zero_label_surrogates(search_spaces.get(space) if space else None, objectives)

    @cached_property
    def _models_without_labels(self) -> dict[Hashable, Self]:
        return {}

    def _transferred(self, space: str, objectives: Sequence[str]) -> list[str]:
        """Return the objectives that have no labels in a space, but in others that have surrogates."""
        known = {*self.trained_on.get(space, TrainedOn(0, ())).objectives}
        known |= {name for surrogate in self._saved_surrogates_of(space) for name in surrogate.objectives}
        sources = transferable(graph_surrogates(self.surrogates), space) if self.trained_on else {}
        return [
            name
            for name in objectives
            if name not in known and can_transfer(name) and source_labels(space, sources, name)
        ]

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
        return self.tokenizer.encode(text)[: self.network.config.max_length]

    def _parse(
        self, space: SearchSpace[Any] | str, architectures: Sequence[Any], objectives: Sequence[str]
    ) -> tuple[SearchSpace[Any], list[Any]]:
        """Return a space and its architectures, parsed where they are strings."""
        architectures = as_list(architectures, "architectures")
        if isinstance(space, str):
            space = search_spaces.get(space)
        else:
            search_spaces.check_name(space)
        self._warn_if_untrained(space.name, objectives)
        return space, [space.parse(a) if isinstance(a, str) else space.validated(a) for a in architectures]

    def check_space(self, space: str, objectives: Sequence[str]) -> None:
        """Check the name of a space, and warn where predictions are unreliable.

        Args:
            space: name of the space; empty if it is unknown.
            objectives: names of the objectives to predict.

        Raises:
            ValueError: neither the model nor `search_spaces` has the space.

        Warns:
            UserWarning: no space is named, or the model was not trained on an objective in it.
        """
        names = dict.fromkeys([*self.trained_on, *search_spaces.names()])
        if space and space not in names:
            raise ValueError(f"there is no space {space!r}; {suggest(space, names)}")
        if space:
            self._warn_if_untrained(space, objectives)
        elif not set(objectives) <= self._learnt_by_surrogates(""):
            warnings.warn(
                "no space is named: predictions for networks unlike the training data are unreliable",
                stacklevel=3,
            )

    def check_task(self, space: str, objectives: Sequence[str], texts: Sequence[str] = ()) -> None:
        """Refuse objectives of training, such as accuracies, that were learnt for another task.

        Args:
            space: name of the space; empty if it is unknown.
            objectives: names of the objectives to predict.
            texts: texts of networks; those that read token ids are language models.

        Raises:
            ValueError: the model learnt an objective for another task alone, or for spaces of language models
                while the network is one of no space.
        """
        is_language_model = any(map(reads_tokens, texts))
        task = LANGUAGE_MODELLING if is_language_model else search_spaces.task_of(space)
        for name in filter(depends_on_task, objectives if task else ()):
            labels = [name, ACCURACY] if is_accuracy(name) else [name]
            learnt = {other for label in labels for other in self._spaces_with(label)}
            tasks = {search_spaces.task_of(other) for other in (learnt & {space} or learnt)}
            if tasks and not tasks & {"", task}:
                raise ValueError(
                    f"{name} cannot be predicted for {task}: the model learnt it for"
                    f" {', '.join(sorted(tasks))} alone. Costs and"
                    " latencies can be, or fine-tune the model on labels of your own"
                )
            if is_language_model and not space and learnt and "" not in learnt:
                raise ValueError(
                    f"{name} cannot be predicted for a language model of no space: name a space of language"
                    " models, or fine-tune the model on labels of your own. Costs and latencies can be"
                )

    def _spaces_with(self, objective: str) -> list[str]:
        """Return the spaces in which the model learnt an objective."""
        trained = [space for space, own in self.trained_on.items() if objective in own.objectives]
        return [
            *trained,
            *(
                space
                for space, group in self.surrogates.items()
                if any(objective in surrogate.objectives for surrogate in group)
            ),
        ]

    def _spaces_of_sums(self, space: str) -> dict[str, str]:
        """Return for each latency that sums of costs of other networks predict what these networks are."""
        return {
            surrogate.objective: f"networks of {other}" if other else "networks without a space"
            for other, group in self.surrogates.items()
            for surrogate in group
            if other != space and isinstance(surrogate, LatencySurrogate) and surrogate.graph_features.costs
        }

    def _learnt_by_surrogates(self, space: str) -> set[str]:
        """Return the objectives that surrogates learnt from networks of a space, or from any networks."""
        files = [] if space else self._surrogates_of_files
        learnt = [*self._layer_surrogates, *files, *self.surrogates.get(space, ())]
        return {name for surrogate in learnt for name in surrogate.objectives}

    def _warn_if_untrained(self, space: str, objectives: Sequence[str]) -> None:
        """Warn if the model was not trained on an objective in a space; refuse those of other tasks."""
        self.check_task(space, objectives)
        known = self.trained_on.get(space, TrainedOn(0, ())).objectives
        known = (*known, *self._learnt_by_surrogates(space), *self._transferred(space, objectives))
        untrained = [name for name in objectives if name not in known]
        sources = self._spaces_of_sums(space)
        for name in untrained:
            if name in sources:
                warnings.warn(
                    f"{name} was learnt from {sources[name]} alone: for {space} it is a sum of the costs of"
                    " layers, and its intervals are widened",
                    NoveltyWarning,
                    stacklevel=4,
                )
        untrained = [name for name in untrained if name not in sources]
        if self.trained_on and untrained:
            warnings.warn(
                f"the model was not trained on {', '.join(untrained)} of {space}: predictions are unreliable,"
                " fine-tune it on your own measurements",
                stacklevel=4,
            )

    def _decoding_order(self, objectives: Sequence[str]) -> list[str]:
        """Return objectives in the order of training: accuracy first."""
        return sorted(objectives, key=lambda name: (name != "accuracy", self.objectives.index(name)))

    def check(self, objectives: Sequence[str]) -> None:
        """Check that objectives are distinct names that the model can predict.

        Raises:
            ValueError: an objective is repeated or unknown.
        """
        check_model_objectives(objectives, self.objectives)

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

        results = self._map(decode_batch, batches) if in_parallel else map(decode_batch, batches)
        return gather_predictions(texts, batches, results, shape, progress)

    def _map(
        self, function: Callable[[Item], np.ndarray], items: Sequence[Item], key: tuple[Hashable, ...] = ()
    ) -> Iterator[np.ndarray]:
        """Map a function over items, in several processes where the network is on the CPU."""
        is_on_cpu = self.network.kinds.device.type == "cpu"
        return process_pool.map_in_processes(function, items, key) if is_on_cpu else map(function, items)

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
            return self.tokenizer.encode(with_input_batch(text, input_batch) if input_batch else text)

        return make_batches(texts, encode, self.network.config.max_length, batch_size)


def _with_novelties(
    quantiles: np.ndarray, distributions: Sequence[PredictiveDistribution | None]
) -> np.ndarray:
    """Return quantiles with novelties as the last column, [N, K, Q + 1].

    Args:
        quantiles: [N, K, Q].
        distributions: predictive distributions of the surrogates of K objectives.
    """
    return np.concatenate([quantiles, novelties(distributions, len(quantiles))[:, :, None]], 2)
