"""The class RLM, the main interface of the package: load, predict, sample, fine-tune and save models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import onnx
import torch
from torch import nn

from nas_rlm.data import Row
from nas_rlm.data.synthetic import graph_features
from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.data.text_data import FAILURE_PREFIX, text_data
from nas_rlm.graph.torch_export import export_module
from nas_rlm.model.batching import named_texts
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.surrogates.given_numbers import Given
from nas_rlm.text.canonical import costed_text, shapes_of_models
from nas_rlm.training.finetune import fine_tune
from nas_rlm.training.recipe import Recipe
from nas_rlm.training.text_report import FitReport
from nas_rlm.training.text_sources import Source
from nas_rlm.training.texts import TextSettings, fit_texts
from nas_rlm.training.trainer import EpochCallback
from nas_rlm.utils import torch_settings
from nas_rlm.utils.validation import as_list, check_objective_names, quantile_levels, suggest

FAILURE_LEVELS = tuple(k / 50 - 0.01 for k in range(1, 51))  # quantiles whose share above 1/2 is counted


class RLM(Ensemble):
    """A regression language model: it reads the text of a network and predicts its objectives.

    Examples:
        >>> import numpy as np, search_spaces
        >>> from nas_rlm import RLM
        >>> rlm = RLM.load("nas")
        >>> space = search_spaces.get("nasbench201")
        >>> archs = [space.sample(np.random.default_rng(0)) for _ in range(10)]
        >>> rlm.predict(space, archs, ["accuracy", "latency/pixel3"]).shape
        (10, 2)

    Args:
        network: encoder-decoder network.
        tokenizer: tokenizer of the network.
        trained_on: number of rows and objectives that the network was trained on, by space.
        temperatures: divisors of the network's logits that calibrate intervals, by space and objective, see
            `nas_rlm.surrogates.calibration`.
        surrogates: surrogates that are combined with the network, by space, see
            `nas_rlm.surrogates.graphs.surrogate`.
        maximised: objectives that a search maximises although their kind is not, as their table declared.
    """

    fit_report: FitReport | None = None

    @classmethod
    def fit(
        cls,
        texts: Iterable[str],
        values: Any,
        objectives: Sequence[str] = (),
        *,
        start: RLM | None = None,
        holdout: float = 0.1,
        tokenizer: str | os.PathLike[str] = "",
        size: int | None = None,
        epochs: int | None = None,
        source: Source | None = None,
        refit: bool = True,
        maximise: Sequence[str] = (),
        seed: int = 0,
        on_epoch: EpochCallback | None = None,
        progress: bool = True,
    ) -> Self:
        """Fit a new model to any texts with any numbers.

        Examples:
            >>> texts = [f'{{"width": {w}, "act": "{a}"}}' for w in range(30) for a in ("relu", "tanh")]
            >>> values = [w + 5 * ("tanh" in text) for w, text in zip([w // 2 for w in range(60)], texts)]
            >>> rlm = RLM.fit(texts, values, source="surrogate")  # without source, the network is compared
            >>> rlm.predict_text(['{"width": 7, "act": "relu"}']).round()
            array([[7.]])

        The network reads the text, and writes each number digit by digit. A Gaussian process on the numbers
        and words of the texts learns from few rows. Validation rows decide for each target whether the
        network, the Gaussian process, or the product of both predicts it; `fit_report` has the decision, and
        metrics on holdout rows.

        Args:
            texts: N strings of any kind: JSON, key-value pairs, code, sentences; also empty ones.
            values: N numbers; or N rows of K numbers; or a mapping from names to N numbers; or a data frame.
                None and NaN are missing, infinity is a value of its own, and words such as failed or OOM add
                the objective `failed/TARGET`.
            objectives: names of the K targets; by default those of the mapping, or `y`.
            start: a fitted model whose network is trained further, instead of a new one.
            holdout: share of the texts that is held out for the metrics; the returned model then learns them
                too.
            tokenizer: name of a shipped model, such as programs, or a SentencePiece file; by default a
                tokenizer is learnt from the texts.
            size: size of the network, see `nas_rlm.model.network.Config`; by default chosen by the number of
                rows.
            epochs: maximum number of epochs of the network; training stops earlier where validation rows no
                longer improve. By default chosen by the amount of text.
            source: what predicts: network, surrogate (the Gaussian process, which takes seconds) or both; by
                default chosen on validation rows.
            refit: fit the model again to all rows, with the choices that were made on a part of them, which
                doubles the time.
            maximise: targets of which higher values are better.
            seed: seed of everything random; the same seed gives the same model.
            on_epoch: function of a `nas_rlm.training.trainer.EpochReport`, called after each epoch of the
                network; if it returns true, the training stops.
            progress: show a progress bar.

        Returns:
            The model. `predict_text`, `sample_text`, `log_prob`, `failure_probability` and `save` use it.

        Raises:
            ValueError: texts and values are not of the same length, a text is no string, a value is no
                number, a target has fewer than two values, or a setting is out of range.

        Warns:
            FewTextsWarning: the rows are too few to hold any out.

        Source: section 3 of the paper; the surrogate and the calibration are additions of this package.
        """
        settings = TextSettings(holdout, tokenizer, size, epochs, source, refit, seed, progress)
        if start is not None and not isinstance(start, RLM):
            raise ValueError(f"start is {start!r}: expected a model, such as RLM.load(...) returns")
        if on_epoch is not None and not callable(on_epoch):
            raise ValueError(f"on_epoch is {on_epoch!r}: expected a function of an EpochReport")
        if isinstance(maximise, str):
            raise ValueError(f"maximise is the string {maximise!r}: expected a list of names")
        given = as_list(texts, "texts")
        data = text_data(given, values, objectives)
        if unknown := [name for name in maximise if name not in data.targets]:
            raise ValueError(f"maximise has {unknown[0]!r}; {suggest(unknown[0], data.targets)}")
        with torch_settings.standard():
            model, report = fit_texts(cls, data, settings, on_epoch, start, len(given))
        model.fit_report, model.maximised = report, tuple(maximise)
        return model

    def failure_probability(self, texts: Sequence[str], objective: str = "") -> np.ndarray:
        """Return the probability that a target fails, for a model that was fitted to failures.

        Args:
            texts: N texts.
            objective: name of the target; by default the first one with failures.

        Returns:
            float64 [N].

        Raises:
            ValueError: the model has learnt no failures of the target.
        """
        if not isinstance(objective, str):
            raise ValueError(f"objective is {objective!r}: expected the name of a target")
        known = [name for name in self.objectives if name.startswith(FAILURE_PREFIX)]
        name = FAILURE_PREFIX + objective if objective else next(iter(known), "")
        if name not in known:
            targets = [k.removeprefix(FAILURE_PREFIX) for k in known]
            if not targets:
                raise ValueError(
                    "the model has learnt no failures: expected one that was fitted to words such as failed"
                )
            raise ValueError(
                f"the model has learnt no failures of {objective!r}; {suggest(objective, targets)}"
            )
        values = self.predict_text(texts, [name], FAILURE_LEVELS)[:, 0]
        shares: np.ndarray = (values > 0.5).mean(1)
        return shares

    def predict_onnx(
        self,
        models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        space: str = "",
        shapes: Mapping[str, Sequence[int]] | None = None,
        given: Given | None = None,
    ) -> np.ndarray:
        """Predict objectives of ONNX models; flops and params are exact.

        Args:
            models: N models or paths of ONNX files; N may be 0.
            objectives: K distinct names.
            quantiles: Q levels between 0 and 1; None for the median only.
            space: name of the space whose temperatures and surrogates are used, see `predict_text`.
            shapes: shapes of inputs that have open sizes in the files, by name, such as
                `{"x": (1, 3, 224, 224)}`. An open first size is a batch of 1.
            given: measured numbers by name, see `predict`.

        Returns:
            float64 [N, K] medians, or [N, K, Q] quantiles.

        Raises:
            ValueError: `models` is not a list, a cost depends on an open size, an objective is unknown, or
                neither the model nor `search_spaces` has the space.

        Warns:
            UserWarning: no space is named, or the model was not trained on an objective in the space.
            TruncationWarning: texts of models are longer than the network reads.
        """
        if self.network.config.reads_any_text:
            raise ValueError(
                "the model was fitted to texts, and reads no ONNX models: expected a model of networks"
            )
        if isinstance(models, str | bytes | os.PathLike | onnx.ModelProto):
            raise ValueError("models is a single one: expected a list of models or paths")
        if not isinstance(models, Iterable):
            raise ValueError(f"models is {models!r}: expected a list of models or paths")
        models = list(models)
        check_objective_names(objectives)
        learned = [k for k, name in enumerate(objectives) if name not in EXACT_OBJECTIVES]
        if learned:
            self.check_space(space, [objectives[k] for k in learned])
        model_names = [
            f"model {i}" if isinstance(m, onnx.ModelProto) else str(m) for i, m in enumerate(models)
        ]
        own_shapes = shapes_of_models(models, shapes if models else None)
        texts = [costed_text(m, own) for m, own in zip(models, own_shapes, strict=True)]
        levels = quantile_levels(quantiles)
        values = np.empty((len(texts), len(objectives), len(levels)))
        if not texts:
            return values if quantiles is not None else values[:, :, 0]
        if learned:
            names = [objectives[k] for k in learned]
            self.check_task(space, names, texts)
            model = self.transferred_to(space, names)
            with named_texts(model_names):
                values[:, learned] = model.predict_text(texts, names, levels, space=space, given=given)
        for k in set(range(len(objectives))).difference(learned):
            values[:, k] = [[graph_features(text)[objectives[k]]] for text in texts]
        return values if quantiles is not None else values[:, :, 0]

    def predict_module(
        self,
        module: nn.Module,
        example_inputs: torch.Tensor | Sequence[Any] | None,
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        space: str = "",
        kwargs: Mapping[str, Any] | None = None,
    ) -> np.ndarray:
        """Predict objectives of a torch module in evaluation mode; flops and params are exact.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> from nas_rlm import RLM
            >>> module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
            >>> example = torch.zeros(1, 3, 32, 32)
            >>> RLM.load("nas").predict_module(module, example, ["flops", "params"], space="nasbench201")
            array([194400.,    240.])

        Args:
            module: the module; its mode and weights stay as they are.
            example_inputs: a tensor, or the positional arguments of a call; None for a call with named
                arguments alone. Their shapes are those of the network.
            objectives: K distinct names.
            quantiles: Q levels between 0 and 1; None for the median only.
            space: name of the space whose temperatures and surrogates are used, see `predict_text`.
            kwargs: named arguments of a call.

        Returns:
            float64 [K] medians, or [K, Q] quantiles.

        Raises:
            ValueError: `torch.export` cannot trace the module, the example inputs are not those of a call, or
                as `predict_onnx`.

        Warns:
            UserWarning: no space is named, or the model was not trained on an objective in the space.
        """
        model = export_module(module, example_inputs, kwargs)
        prediction: np.ndarray = self.predict_onnx([model], objectives, quantiles, space)[0]
        return prediction

    def fine_tune(
        self,
        rows: Sequence[Row],
        objectives: Sequence[str],
        recipe: Recipe | None = None,
        seed: int = 0,
        surrogates: bool = True,
        learn: str = "all",
        maximise: Sequence[str] = (),
    ) -> Self:
        """Return a copy that is trained further on rows; see `nas_rlm.training.finetune.fine_tune`."""
        return fine_tune(self, rows, objectives, recipe, seed, surrogates, learn, maximise)
