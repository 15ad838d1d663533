"""Objectives of a search: computed from the graph, by a user's function, or predicted by a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.utils.validation import check_objective_names, suggest
from search_spaces import SearchSpace
from search_spaces.loading import load_module

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM
    from nas_rlm.surrogates.given_numbers import Given

ObjectiveFunction = Callable[[Any], float]  # from an architecture to a number
NO_FUNCTIONS: Mapping[str, ObjectiveFunction] = MappingProxyType({})


class ObjectivePredictor:
    """A predictor that computes exact objectives, calls user functions, and leaves the rest to a model.

    Examples:
        >>> import search_spaces
        >>> from nas_rlm import RLM
        >>> space = search_spaces.get("nasbench201")
        >>> functions = {"skips": lambda cell: str(cell).count("skip_connect")}
        >>> predictor = ObjectivePredictor(RLM.load("nas"), functions)
        >>> cell = space.sample(np.random.default_rng(0))
        >>> predictor.predict(space, [cell], ["accuracy", "params", "skips"]).shape
        (1, 3, 1)

    Args:
        model: predicts all other objectives.
        functions: user-defined objectives by name; each is called once per architecture.

    Raises:
        ValueError: a function has the name of an exact objective or of one that the model predicts.
    """

    def __init__(self, model: RLM, functions: Mapping[str, ObjectiveFunction] = NO_FUNCTIONS) -> None:
        for name in functions:
            if name in EXACT_OBJECTIVES or name in model.objectives:
                raise ValueError(f"there is an objective {name!r} already: expected another name")
        self.model, self.functions = model, dict(functions)
        self._computed: dict[tuple[str, str], float] = {}

    def check(self, objectives: Sequence[str]) -> None:
        """Refuse unknown and repeated objectives.

        Raises:
            ValueError: an objective is neither exact nor a user function nor predicted by the model.
        """
        check_objective_names(objectives)
        available = [*self.functions, *EXACT_OBJECTIVES, *self.model.objectives]
        for name in objectives:
            if name not in available:
                raise ValueError(f"unknown objective {name!r}; {suggest(name, available)}")

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] = (0.5,),
        progress: bool = False,
        given: Given | None = None,
    ) -> np.ndarray:
        """Return quantiles of each objective: float64 [N, K, Q]; those of computed objectives are all equal.

        Args:
            space: the search space.
            architectures: N architectures, or their texts.
            objectives: K names.
            quantiles: Q quantile levels.
            progress: show a progress bar of the model's predictions.
            given: measured numbers by name, see `nas_rlm.RLM.predict`.

        Raises:
            ValueError: a user function fails or returns no finite number.
        """
        values = np.empty((len(architectures), len(objectives), len(quantiles)))
        computed, predicted = self._split(objectives)
        if predicted:
            names = [objectives[k] for k in predicted]
            # Predictors without a network of their own, such as exported ones, cannot be conditioned.
            conditions: dict[str, Any] = {"given": given} if given else {}
            values[:, predicted] = self.model.predict(
                space, architectures, names, quantiles, progress=progress, **conditions
            )
        for k in computed:
            values[:, k] = self._compute_all(space, architectures, objectives[k])[:, None]
        return values

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] = (0.5,),
        space: str = "",
        progress: bool = False,
        given: Given | None = None,
    ) -> np.ndarray:
        """Return quantiles for texts that `nas_rlm.text.from_onnx` returned, without user functions.

        Args:
            texts: N texts.
            objectives: K names.
            quantiles: Q quantile levels.
            space: name of the texts' search space.
            progress: show a progress bar of the model's predictions.
            given: as in `predict`.

        Returns:
            float64 [N, K, Q].
        """
        from nas_rlm.data import synthetic

        values = np.empty((len(texts), len(objectives), len(quantiles)))
        computed, predicted = self._split(objectives)
        if predicted:
            names = [objectives[k] for k in predicted]
            values[:, predicted] = self.model.predict_text(
                texts, names, quantiles, progress=progress, space=space, given=given
            )
        for i, text in enumerate(texts if computed else ()):
            features = synthetic.graph_features(text)
            values[i, computed] = [[features[objectives[k]]] for k in computed]
        return values

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Return joint samples: float64 [N, num_samples, K]; those of computed objectives are all equal.

        Args:
            space: the search space.
            architectures: N architectures, or their texts.
            objectives: K names.
            num_samples: samples per architecture.
            seed: seed of the samples.
        """
        values = np.empty((len(architectures), num_samples, len(objectives)))
        computed, predicted = self._split(objectives)
        if predicted:
            names = [objectives[k] for k in predicted]
            values[:, :, predicted] = self.model.sample(space, architectures, names, num_samples, seed)
        for k in computed:
            values[:, :, k] = self._compute_all(space, architectures, objectives[k])[:, None]
        return values

    def _split(self, objectives: Sequence[str]) -> tuple[list[int], list[int]]:
        """Positions of the objectives that are computed, and of those that the model predicts."""
        computed = [k for k, name in enumerate(objectives) if name in (*EXACT_OBJECTIVES, *self.functions)]
        return computed, [k for k in range(len(objectives)) if k not in computed]

    def _compute_all(
        self, space: SearchSpace[Any], architectures: Sequence[Any], objective: str
    ) -> np.ndarray:
        """Values of a computed objective, cached by architecture: float64 [N]."""
        for architecture in architectures:
            key = objective, str(architecture)
            if key not in self._computed:
                parsed = space.parse(architecture) if isinstance(architecture, str) else architecture
                self._computed[key] = self._compute(space, parsed, objective)
        return np.array([self._computed[objective, str(a)] for a in architectures], dtype=float)

    def _compute(self, space: SearchSpace[Any], architecture: Any, objective: str) -> float:
        """An exact objective, or the value of a user function."""
        if objective in EXACT_OBJECTIVES:
            exact = {"flops": space.flops, "params": space.params}
            return float(exact[objective](architecture))
        try:
            value = float(self.functions[objective](architecture))
            if not math.isfinite(value):
                raise ValueError(f"it returned {value}, expected a finite number")
        except (Exception, SystemExit) as error:  # user code may raise anything
            reason = str(error) or "no reason given"
            raise ValueError(
                f"{objective} of {architecture} failed: {type(error).__name__}: {reason}"
            ) from error
        return value


def load_function(text: str) -> tuple[str, ObjectiveFunction]:
    """Load a user-defined objective.

    Args:
        text: `NAME=FILE.py:FUNCTION` or `NAME=MODULE:FUNCTION`. The file or module is executed.

    Returns:
        The objective's name and its function.

    Raises:
        ValueError: the text has another form, or there is no such function.
    """
    name, _, location = text.partition("=")
    source, _, attribute = location.rpartition(":")
    if not (name and source and attribute):
        raise ValueError(f"function {text!r} is not NAME=FILE.py:FUNCTION: try energy=mine.py:energy")
    check_function_name(name)
    module = load_module(source, f"function {text!r}")
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise ValueError(
            f"function {text!r}: {source} has no function {attribute!r}; {suggest(attribute, names)}"
        )
    return name, function


def check_function_name(name: str) -> None:
    """Refuse a name that cannot stand in a list of objectives or in a constraint.

    Raises:
        ValueError: the name has a blank or one of , < > = @.
    """
    if any(c in name for c in " ,<>=@"):
        raise ValueError(f"{name!r} is not an objective's name: expected one without blanks and , < > = @")
