"""RLM: load, predict, rank, sample, fine-tune, save. The public face of the models."""

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

    def predict_onnx(
        self,
        models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        space: str = "",
    ) -> np.ndarray:
        """Predict numbers of ONNX models or files; otherwise as `predict_text`.

        Raises:
            ValueError: also a space that neither the model nor `search_spaces` knows.

        Warns:
            UserWarning: the model has never seen the objectives in the space, or no space is named.
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
        experts: bool = True,
        learn: str = "all",
    ) -> Self:
        """A new model, trained further on measured architectures; see `nas_rlm.training.finetune`."""
        return fine_tune(self, rows, objectives, recipe, seed, experts, learn)
