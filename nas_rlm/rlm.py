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
from nas_rlm.graph.torch_export import export_module
from nas_rlm.model.batching import named_texts
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.text.canonical import costed_text, shapes_of_models
from nas_rlm.training.finetune import fine_tune
from nas_rlm.training.recipe import Recipe
from nas_rlm.utils.validation import check_objective_names, quantile_levels


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
            `nas_rlm.surrogates.graph_surrogate`.
        maximised: objectives that a search maximises although their kind is not, as their table declared.
    """

    def predict_onnx(
        self,
        models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        space: str = "",
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> np.ndarray:
        """Predict objectives of ONNX models; flops and params are exact.

        Args:
            models: N models or paths of ONNX files; N may be 0.
            objectives: K distinct names.
            quantiles: Q levels between 0 and 1; None for the median only.
            space: name of the space whose temperatures and surrogates are used, see `predict_text`.
            shapes: shapes of inputs that have open sizes in the files, by name, such as
                `{"x": (1, 3, 224, 224)}`. An open first size is a batch of 1.

        Returns:
            float64 [N, K] medians, or [N, K, Q] quantiles.

        Raises:
            ValueError: `models` is not a list, a cost depends on an open size, an objective is unknown, or
                neither the model nor `search_spaces` has the space.

        Warns:
            UserWarning: no space is named, or the model was not trained on an objective in the space.
            TruncationWarning: texts of models are longer than the network reads.
        """
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
                values[:, learned] = model.predict_text(texts, names, levels, space=space)
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
