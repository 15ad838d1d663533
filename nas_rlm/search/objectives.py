"""Who tells a number of an architecture: its graph, a function of the user's own, or a model."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from nas_rlm.utils.validation import check_names, hint
from search_spaces import SearchSpace

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM

Function = Callable[[Any], float]  # from an architecture to a number
EXACT: Mapping[str, Callable[[SearchSpace[Any], Any], int]] = MappingProxyType(
    {
        "flops": lambda space, architecture: space.flops(architecture),
        "params": lambda space, architecture: space.params(architecture),
    }
)
NO_FUNCTIONS: Mapping[str, Function] = MappingProxyType({})


class Evaluator:
    """A predictor that counts what can be counted, calls a user's functions, and asks a model for the rest.

    >>> import search_spaces
    >>> from nas_rlm import RLM
    >>> space = search_spaces.get("nasbench201")
    >>> evaluator = Evaluator(RLM.load("nas"), {"skips": lambda cell: str(cell).count("skip_connect")})
    >>> cell = space.sample(np.random.default_rng(0))
    >>> evaluator.predict(space, [cell], ["accuracy", "params", "skips"]).shape
    (1, 3, 1)

    Args:
        model: for all other objectives.
        functions: by their objectives' names; each architecture is given to them once.

    Raises:
        ValueError: a function has the name of something that is counted or that the model knows.
    """

    def __init__(self, model: RLM, functions: Mapping[str, Function] = NO_FUNCTIONS) -> None:
        for name in functions:
            if name in EXACT or name in model.objectives:
                raise ValueError(f"there is an objective {name!r} already: expected another name")
        self.model, self.functions = model, dict(functions)
        self._known: dict[tuple[str, str], float] = {}

    def check(self, objectives: Sequence[str]) -> None:
        """Refuse objectives that nobody knows, and repeated ones."""
        check_names(objectives)
        known = [*self.functions, *EXACT, *self.model.objectives]
        for name in objectives:
            if name not in known:
                raise ValueError(f"nobody knows the objective {name!r}; {hint(name, known)}")

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float] = (0.5,),
        progress: bool = False,
    ) -> np.ndarray:
        """Quantiles of each objective, float64 [N, K, Q]; all are the same where there is no doubt.

        Raises:
            ValueError: a function fails, or gives no number.
        """
        found = np.empty((len(architectures), len(objectives), len(quantiles)))
        own, told = self._parted(objectives)
        if told:
            some = [objectives[k] for k in told]
            found[:, told] = self.model.predict(space, architectures, some, quantiles, progress=progress)
        for k in own:
            found[:, k] = self._numbers(space, architectures, objectives[k])[:, None]
        return found

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] = (0.5,),
        space: str = "",
        progress: bool = False,
    ) -> np.ndarray:
        """As `predict`, of texts as `nas_rlm.text.from_onnx` gives them, of which no function knows."""
        from nas_rlm.data import synthetic

        found = np.empty((len(texts), len(objectives), len(quantiles)))
        own, told = self._parted(objectives)
        if told:
            some = [objectives[k] for k in told]
            found[:, told] = self.model.predict_text(texts, some, quantiles, progress=progress, space=space)
        for i, text in enumerate(texts if own else ()):
            counted = synthetic.metrics(text)
            found[i, own] = [[counted[objectives[k]]] for k in own]
        return found

    def sample(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        num_samples: int = 64,
        seed: int = 0,
    ) -> np.ndarray:
        """Joint draws, float64 [N, S, K]; all are the same where there is no doubt."""
        found = np.empty((len(architectures), num_samples, len(objectives)))
        own, told = self._parted(objectives)
        if told:
            some = [objectives[k] for k in told]
            found[:, :, told] = self.model.sample(space, architectures, some, num_samples, seed)
        for k in own:
            found[:, :, k] = self._numbers(space, architectures, objectives[k])[:, None]
        return found

    def _is_own(self, objective: str) -> bool:
        return objective in EXACT or objective in self.functions

    def _parted(self, objectives: Sequence[str]) -> tuple[list[int], list[int]]:
        """The positions of what is counted or computed, and of what the model tells."""
        own = [k for k, name in enumerate(objectives) if self._is_own(name)]
        return own, [k for k in range(len(objectives)) if k not in own]

    def _numbers(self, space: SearchSpace[Any], architectures: Sequence[Any], objective: str) -> np.ndarray:
        """An exact objective, or a function's, of architectures, float64 [N]."""
        parsed = [space.parse(a) if isinstance(a, str) else a for a in architectures]
        for one in parsed:
            key = objective, str(one)
            if key not in self._known:
                counted = EXACT.get(objective)
                self._known[key] = float(counted(space, one)) if counted else self._called(objective, one)
        return np.array([self._known[objective, str(one)] for one in parsed], dtype=float)

    def _called(self, objective: str, architecture: Any) -> float:
        try:
            found = float(self.functions[objective](architecture))
            if not math.isfinite(found):
                raise ValueError(f"it gave {found}, expected a finite number")
        except (Exception, SystemExit) as error:  # whatever a user's code raises
            reason = str(error) or "no reason given"
            raise ValueError(
                f"{objective} of {architecture} failed: {type(error).__name__}: {reason}"
            ) from error
        return found


def load_function(text: str) -> tuple[str, Function]:
    """An objective's name and the function that tells it.

    Args:
        text: `NAME=FILE.py:FUNCTION` or `NAME=MODULE:FUNCTION`. The file or module is run.

    Raises:
        ValueError: it is not that, or there is no such function.
    """
    name, _, place = text.partition("=")
    source, _, attribute = place.rpartition(":")
    if not (name and source and attribute):
        raise ValueError(f"function {text!r} is not NAME=FILE.py:FUNCTION: try energy=mine.py:energy")
    if any(c in name for c in " ,<>=@"):
        raise ValueError(f"{name!r} is no objective's name: expected one without blanks and , < > = @")
    try:
        module = _run(source) if source.endswith(".py") else importlib.import_module(source)
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        raise ValueError(
            f"function {text!r}: {source} cannot be run: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise ValueError(
            f"function {text!r}: {source} has no function {attribute!r}; {hint(attribute, names)}"
        )
    return name, found


def _run(path: str) -> Any:
    if not Path(path).is_file():
        raise FileNotFoundError("there is no such file")
    name = f"nas_rlm_user_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that its dataclasses and pickles find it
    spec.loader.exec_module(module)
    return module
