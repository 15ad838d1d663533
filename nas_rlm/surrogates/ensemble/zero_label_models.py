"""Copies of a model that predict spaces without labels by what transfers to them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import search_spaces
from nas_rlm.surrogates.ensemble.trained_model import TrainedModel
from nas_rlm.surrogates.zero_label import zero_label_messages, zero_label_surrogates
from nas_rlm.utils import torch_settings
from search_spaces import SearchSpace

Model = TypeVar("Model", bound=TrainedModel)


class ZeroLabelModels(Generic[Model]):
    """Copies of a model with surrogates of spaces without labels; each is made once."""

    def __init__(self) -> None:
        self._models: dict[Hashable, Model] = {}

    def for_space(self, model: Model, space: SearchSpace[Any] | None, objectives: Sequence[str]) -> Model:
        """Return a model that predicts objectives without labels in a space by what transfers to it.

        Args:
            model: the model, with the same network each time.
            space: the space; None for networks that need not be of one space.
            objectives: the objectives.

        Returns:
            A copy with the same network and surrogates; the model itself where nothing can be transferred.

        Warns:
            UserWarning: the model has no labels of an objective in the space.
        """
        name = space.name if space else ""
        selection = model.selection
        missing = tuple(selection.transferred(name, objectives))
        if not missing:
            return model
        numbers = tuple((other, len(group)) for other, group in model.surrogates.items())
        key = name, id(type(space)), missing, numbers
        if key not in self._models:
            with torch_settings.standard():
                found = zero_label_surrogates(space, missing, selection.sources(name))
            copied = copy.copy(model)
            copied.zero_label = {**model.zero_label, name: found}
            self._models[key] = copied
        location = search_spaces.location_of(space) if space else ""
        for message in zero_label_messages(name, self._models[key].zero_label[name], location):
            warnings.warn(message, stacklevel=4)
        return self._models[key]
