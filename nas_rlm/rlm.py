"""The class RLM, the main interface of the package: load, predict, sample, fine-tune and save models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
import onnx

from nas_rlm.data import Row
from nas_rlm.surrogates.ensemble import Ensemble
from nas_rlm.text import from_onnx
from nas_rlm.training.finetune import fine_tune
from nas_rlm.training.recipe import Recipe


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
    """

    def predict_onnx(
        self,
        models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        space: str = "",
    ) -> np.ndarray:
        """Predict objectives of ONNX models.

        Args:
            models: N models or paths of ONNX files.
            objectives: K distinct names.
            quantiles: Q levels between 0 and 1; None for the median only.
            space: name of the space whose temperatures and surrogates are used, see `predict_text`.

        Returns:
            float64 [N, K] medians, or [N, K, Q] quantiles.

        Raises:
            ValueError: `models` is not a list, an objective is unknown, or neither the model nor
                `search_spaces` has the space.

        Warns:
            UserWarning: no space is named, or the model was not trained on an objective in the space.
        """
        if isinstance(models, str | os.PathLike | onnx.ModelProto):
            raise ValueError("models is a single one: expected a list of models or paths")
        self.check_space(space, objectives)
        return self.predict_text([from_onnx(m) for m in models], objectives, quantiles, space=space)

    def fine_tune(
        self,
        rows: Sequence[Row],
        objectives: Sequence[str],
        recipe: Recipe | None = None,
        seed: int = 0,
        surrogates: bool = True,
        learn: str = "all",
    ) -> Self:
        """Return a copy that is trained further on rows; see `nas_rlm.training.finetune.fine_tune`."""
        return fine_tune(self, rows, objectives, recipe, seed, surrogates, learn)
