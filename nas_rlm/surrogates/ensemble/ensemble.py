"""Ensemble of the network and its surrogates: predictions and samples of architectures and texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch

import search_spaces
from nas_rlm.data.genome import Genome
from nas_rlm.graph.cache import gc_paused
from nas_rlm.model.batching import DEFAULT_BATCH_SIZE, chunk_size, named_texts, names_of_texts
from nas_rlm.model.statement_encoder import weight_versions
from nas_rlm.surrogates.ensemble.checks import (
    check_name_of_space,
    check_surrogates,
    check_task,
    reliability_warnings,
)
from nas_rlm.surrogates.ensemble.distributions import ConditionalSurrogates, TextDistributions
from nas_rlm.surrogates.ensemble.log_probabilities import checked_numbers, log_probabilities
from nas_rlm.surrogates.ensemble.quantiles import predict_quantiles
from nas_rlm.surrogates.ensemble.query import TextQuery, join_parts
from nas_rlm.surrogates.ensemble.samples import decoding_order, draw_samples
from nas_rlm.surrogates.ensemble.trained_model import TrainedModel
from nas_rlm.surrogates.ensemble.zero_label_models import ZeroLabelModels
from nas_rlm.surrogates.given_numbers import Given, check_given, check_range
from nas_rlm.surrogates.graphs.network_sizes import warn_of_other_sizes
from nas_rlm.surrogates.registry import uses_genome, warn_of_novel_networks
from nas_rlm.text import from_architectures
from nas_rlm.utils import torch_settings
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import as_list, as_strings, is_whole_number, quantile_levels
from search_spaces import SearchSpace


class Ensemble(TrainedModel):
    """A trained model that predicts architectures and texts; see `nas_rlm.rlm.RLM`."""

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
            query = TextQuery(texts, objectives, space.name, genomes=genomes)
            return self._predict_parts(query, levels, batch_size)

        arguments = tuple(objectives), tuple(levels), batch_size
        key = id(self), id(space), *arguments, weight_versions(self.network.parameters())
        return self.map_in_processes(predict_chunk, chunks, key)

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str] | None = None,
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
            objectives: as in `predict`; by default all of the model's.
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
        texts, levels = as_strings(texts, "texts"), quantile_levels(quantiles)
        objectives = self.objectives if objectives is None else objectives
        self.check(objectives)
        numbers = check_given(given, len(texts), objectives, self.objectives)
        check_range(numbers, self.selection.labels(space, objectives))
        query = self._query(texts, objectives, space, numbers, genomes)
        values = self._predict_parts(query, levels, batch_size, progress)
        names = names_of_texts(len(texts))
        warn_of_novel_networks(values[:, :, -1], objectives, names)
        warn_of_other_sizes(self.selection.labelled_sizes(space, objectives), texts, names)
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
        query = self._query(as_strings(texts, "texts"), objectives, space, given or {}, genomes)
        return self._predict_parts(query, levels, batch_size, progress)

    def _query(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        space: str,
        given: Mapping[str, np.ndarray],
        genomes: Sequence[Genome],
    ) -> TextQuery:
        """Return a query, without genomes that no surrogate uses."""
        used = genomes if uses_genome(self.surrogates_of(space)) else ()
        return TextQuery(texts, objectives, space, given, used)

    def _predict_parts(
        self, query: TextQuery, levels: Sequence[float], batch_size: int, progress: bool = False
    ) -> np.ndarray:
        """Return quantiles and novelties of a query, see `predict_with_novelties`."""
        with torch_settings.standard():
            return join_parts(
                (rows, self.predict_query(part, levels, batch_size, progress)) for rows, part in query.parts()
            )

    def predict_query(
        self,
        query: TextQuery,
        levels: Sequence[float],
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
    ) -> np.ndarray:
        """Return quantiles and novelties of a part of a query, see `predict_with_novelties`.

        Args:
            query: N texts and K objectives that the model knows, see `TextQuery.parts`.
            levels: Q quantile levels.
            batch_size: number of texts in a batch.
            progress: show a progress bar.

        Returns:
            float64 [N, K, Q + 1].
        """
        distributions = self._distributions(query)
        return predict_quantiles(self, query, distributions, levels, batch_size, progress)

    def _distributions(self, query: TextQuery) -> TextDistributions:
        """Return what surrogates predict for the texts of a query.

        Raises:
            ValueError: neither the network nor a surrogate can predict an objective in the space.
        """
        check_surrogates(self.selection, query.space, query.objectives)
        surrogates = self.surrogates_of(query.space)
        return TextDistributions(query, surrogates, self._conditional.of_query(query, surrogates))

    @cached_property
    def _conditional(self) -> ConditionalSurrogates:
        return ConditionalSurrogates()

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
        objectives: Sequence[str] | None = None,
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
            objectives: as in `sample`; by default all of the model's.
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
        objectives = self.objectives if objectives is None else objectives
        self.check(objectives)
        if not is_whole_number(num_samples) or num_samples < 1:
            raise ValueError(f"num_samples is {num_samples!r}: expected an integer of at least 1")
        generator = torch.Generator(self.network.kinds.device).manual_seed(int(seed))
        order = decoding_order(objectives, self.objectives)
        texts = as_strings(texts, "texts")
        numbers = check_given(given, len(texts), objectives, self.objectives)
        check_range(numbers, self.selection.labels(space, objectives))
        query = self._query(texts, order, space, numbers, genomes)
        with torch_settings.standard():
            samples = join_parts(
                (rows, draw_samples(self, part, self._distributions(part), num_samples, generator, progress))
                for rows, part in query.parts()
            )
        names = names_of_texts(len(texts))
        warn_of_novel_networks(samples[:, -1], order, names)
        warn_of_other_sizes(self.selection.labelled_sizes(space, objectives), texts, names)
        return samples[:, :-1, [order.index(name) for name in objectives]]

    def log_prob(
        self,
        texts: Sequence[str] | str,
        values: Sequence[float] | float,
        objective: str = "",
        space: str = "",
    ) -> np.ndarray | float:
        """Return the log-probability with which the model writes a value for each text.

        A value is rounded to the digits of the model's numbers: the probability is that of all values that
        round to the same number.

        Args:
            texts: N texts, or a single one.
            values: a value for each text, or one for all.
            objective: name of the objective; by default the model's first.
            space: name of the space of the texts, such as that of programs; empty for none.

        Returns:
            float64 [N], or a float for a single text.

        Raises:
            ValueError: the objective is unknown, a text is empty although the model reads none that are, or a
                value is no number.
        """
        name = objective or self.objectives[0]
        self.check([name])
        of_all = [texts] if isinstance(texts, str) else as_strings(texts, "texts")
        numbers = checked_numbers(values, len(of_all), name, self.objectives)
        with torch_settings.standard():
            distributions = self._distributions(TextQuery(of_all, [name], space))
            logs = log_probabilities(self, of_all, numbers, name, distributions)
        return float(logs[0]) if isinstance(texts, str) else logs

    def with_zero_label_surrogates(self, space: SearchSpace[Any] | None, objectives: Sequence[str]) -> Self:
        """Return a model that predicts objectives without labels in a space by what transfers to it.

        The result has the same network and surrogates. It is computed once for a space and objectives.

        Args:
            space: the space; None for networks that need not be of one space.
            objectives: the objectives.

        Warns:
            UserWarning: the model has no labels of an objective in the space.
        """
        return self._zero_label_models.for_space(self, space, objectives)

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
    def _zero_label_models(self) -> ZeroLabelModels[Self]:
        return ZeroLabelModels()

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
        check_name_of_space(self.selection, space)
        self._warn_if_unreliable(space, objectives)

    def check_task(self, space: str, objectives: Sequence[str], texts: Sequence[str] = ()) -> None:
        """Refuse objectives that were learnt for another task, see `ensemble.checks.check_task`."""
        check_task(self.selection, space, objectives, texts)

    def _parse(
        self, space: SearchSpace[Any] | str, architectures: Sequence[Any], objectives: Sequence[str]
    ) -> tuple[SearchSpace[Any], list[Any]]:
        """Return a space and its architectures, parsed where they are strings."""
        architectures = as_list(architectures, "architectures")
        space = search_spaces.checked(space)
        self._warn_if_unreliable(space.name, objectives, space.known_task)
        return space, [space.as_architecture(a) for a in architectures]

    def _warn_if_unreliable(self, space: str, objectives: Sequence[str], task: str = "") -> None:
        """Warn of objectives that are unreliable in a space; refuse those of other tasks than its own."""
        check_task(self.selection, space, objectives, task=task)
        for warning in reliability_warnings(self.selection, space, objectives):
            warnings.warn(warning, stacklevel=4)
