"""Settings of a study, and their file study.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, StrictInt, TypeAdapter, ValidationError

from nas_rlm.data.objective_kinds import expected_value
from nas_rlm.data.omissions import is_storable, is_valid_target, to_number
from nas_rlm.data.rows import MIN_LATENCY_MS, TIME_OF_A_BATCH
from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.devices.device import Device
from nas_rlm.files import check_writable, write_text
from nas_rlm.search.settings import SearchSettings
from nas_rlm.utils.schema import NO_OTHER_KEYS, message
from nas_rlm.utils.validation import suggest
from search_spaces import SearchSpace

FILE = "study.json"
MAY_DIFFER = ("location", "model_name")  # when a study is opened again
COMMON_OBJECTIVES = "accuracy", "perplexity", *EXACT_OBJECTIVES  # names like these are misspelt


class NotFiniteError(ValueError):
    """A value is infinite or NaN, as of a training that diverged."""


@dataclass(frozen=True)
class StudySettings:
    """Settings of a study.

    Args:
        space: name of the search space.
        objectives: objectives to optimise.
        constraints: bounds on these or other objectives, see `nas_rlm.search.settings.Constraint`.
        maximised: objectives that are maximised although their kind is not.
        device: device on which the network of each trial is measured; empty for none.
        predicted: objectives whose values are the model's predictions.
        seed: seed of all random choices.
        model: fingerprint of the model and of the space's file.
        model_name: name or directory of the model.
        location: `FILE.py:CLASS` or `MODULE:CLASS` of a space that is not registered; otherwise empty.
        budgets: budgets of evaluations, such as epochs, ascending; empty if a trial has one evaluation.

    Raises:
        ValueError: a setting is invalid, or two settings contradict each other.
    """

    space: str
    objectives: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    maximised: tuple[str, ...] = ()
    device: str = ""
    predicted: tuple[str, ...] = ()
    seed: StrictInt = 0
    model: str = ""
    model_name: str = ""
    location: str = ""
    budgets: tuple[int | float, ...] = ()

    __pydantic_config__: ClassVar[ConfigDict] = NO_OTHER_KEYS  # applies where pydantic reads settings

    def __post_init__(self) -> None:
        names = self.search.all_objectives
        for name in names:
            if not is_storable(name):
                raise ValueError(f"{name!r} is not an objective's name: expected KIND or KIND/NAME")
            if name not in COMMON_OBJECTIVES and (
                close := get_close_matches(name, COMMON_OBJECTIVES, 1, 0.85)
            ):
                raise ValueError(f"{name!r} is no known objective; did you mean {close[0]}?")
        for name in self.predicted:
            if name not in names:
                raise ValueError(f"{name!r} is to be predicted, but is no objective: {suggest(name, names)}")
            if name in (*EXACT_OBJECTIVES, *self.measured):
                raise ValueError(f"{name!r} is to be predicted, but is exact or measured")
        if self.budgets:
            self._check_budgets()
        if self.device and not self.measured:
            raise ValueError(
                f"no objective of {self.device} is among {', '.join(names)}:"
                f" expected latency/{self.device} or memory/{self.device}"
            )

    def _check_budgets(self) -> None:
        numbers = [b for b in self.budgets if isinstance(b, int | float) and 0 < b < math.inf]
        if len(numbers) < len(self.budgets) or len(numbers) < 2 or sorted(set(numbers)) != numbers:
            raise ValueError(
                f"budgets are {list(self.budgets)}, expected two or more ascending numbers such as 1, 4, 16"
            )
        if not self.evaluated:
            raise ValueError(
                "budgets without an objective that an evaluation gives: expected one such as accuracy"
            )

    @cached_property
    def search(self) -> SearchSettings:
        """The objectives, constraints and seed as settings of a search."""
        return SearchSettings(
            self.space,
            self.objectives,
            self.constraints,
            seed=self.seed,
            maximised=self.maximised,
            data=FILE,  # values of trials replace predictions
            location=self.location,
        )

    @property
    def measured(self) -> tuple[str, ...]:
        """The objectives that are measured on the device."""
        kinds = ("latency", "memory") if self.device else ()
        measurable = {f"{kind}/{Device.parse(self.device)}" for kind in kinds}
        return tuple(name for name in self.search.all_objectives if name in measurable)

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The objectives that an evaluation has to give: those neither exact nor measured nor predicted."""
        given = (*EXACT_OBJECTIVES, *self.measured, *self.predicted)
        return tuple(name for name in self.search.all_objectives if name not in given)

    @property
    def is_measured_only(self) -> bool:
        """Whether networks are measured and nothing else has to be evaluated."""
        return bool(self.measured) and not self.evaluated

    @property
    def learned(self) -> tuple[str, ...]:
        """The objectives that surrogates learn from trials."""
        return (*self.evaluated, *self.measured)

    def load_space(self) -> SearchSpace[Any]:
        """Return the search space."""
        return self.search.load_space()

    def checked_values(
        self, values: object, complete: bool, source: str = "the evaluation"
    ) -> dict[str, float]:
        """Return values that an evaluation gave, as numbers by objective.

        Args:
            values: a mapping from objectives to numbers, or a number where there is a single one to give.
            complete: whether all objectives of `evaluated` have to be there.
            source: what gave the values, for messages.

        Raises:
            NotFiniteError: a value is infinite or NaN.
            ValueError: an objective is missing or unknown, or a value is not a number in its range.
        """
        expected = ", ".join(self.evaluated) or "no value"
        if not isinstance(values, Mapping):
            if len(self.evaluated) != 1:
                raise ValueError(f"{source} gave {_short(values)}, expected values of {expected}")
            values = {self.evaluated[0]: values}
        numbers: dict[str, float] = {}
        for name, value in values.items():
            if name not in self.evaluated:
                reason = self._origin(name) or suggest(str(name), self.evaluated)
                raise ValueError(f"{source} gave {str(name)!r}, expected {expected}; {reason}")
            numbers[name] = checked_value(name, value)
        missing = [name for name in self.evaluated if name not in numbers]
        if complete and missing:
            raise ValueError(f"{source} gave no {' and no '.join(missing)}, expected {expected}")
        return numbers

    def _origin(self, name: object) -> str:
        """From where the value of an objective that is not evaluated comes; empty if it is no objective."""
        if name in EXACT_OBJECTIVES:
            return f"{name} is counted, leave it out"
        if name in self.measured:
            return f"{name} is measured on {self.device}, leave it out"
        return f"{name} is predicted, leave it out" if name in self.predicted else ""


def checked_value(objective: str, value: object) -> float:
    """Return a value of an objective as a number.

    Raises:
        NotFiniteError: it is infinite or NaN.
        ValueError: it is not a number in the range of the objective.
    """
    number = to_number(value)
    if number is None and _is_not_finite(value):
        raise NotFiniteError(f"{objective} is {_short(value)}, expected {expected_value(objective)}")
    if number is None or not is_valid_target(objective, number):
        raise ValueError(f"{objective} is {_short(value)}, expected {expected_value(objective)}")
    check_latency(objective, number)
    return number


def check_latency(objective: str, value: float) -> None:
    """Refuse a latency that is near zero, which tables and surrogates take for a value that is missing.

    Raises:
        ValueError: the value is one.
    """
    if objective.startswith("latency/") and value < MIN_LATENCY_MS:
        raise ValueError(
            f"{objective} is {value:.3g} ms, and less than {MIN_LATENCY_MS} ms counts as not measured:"
            f" {TIME_OF_A_BATCH}, which a device such as onnxruntime-cpu-1t-b32 measures"
        )


def _is_not_finite(value: object) -> bool:
    """Whether a value is a number, but infinite or NaN."""
    try:
        return not math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False


def _short(value: object) -> str:
    return f"{value!r}"[:80]


def read_settings(directory: Path) -> StudySettings:
    """Return the settings of a study's directory.

    Raises:
        FileNotFoundError: the directory has no study.
        ValueError: the file is damaged.
    """
    path = directory / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{directory} holds no study: expected the directory of a Study, or the --out of nas-rlm search"
            " --train"
        )
    try:
        return TypeAdapter(StudySettings).validate_python(json.loads(path.read_text()))
    except ValidationError as error:
        reason = message(error, [field.name for field in fields(StudySettings)])
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise ValueError(f"{path} is not what a study writes: {reason}")


def is_study(directory: Path) -> bool:
    """Return whether a directory has a study."""
    return (directory / FILE).is_file()


def open_directory(directory: Path, settings: StudySettings) -> None:
    """Create the directory of a study with its settings, or check that it has the same ones.

    Raises:
        ValueError: the directory holds other files or a study with other settings.
    """
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: a study needs a directory of that name")
    check_writable(directory)
    if is_study(directory):
        existing = read_settings(directory)
        names = [f.name for f in fields(StudySettings) if f.name not in MAY_DIFFER]
        pairs = {name: (getattr(existing, name), getattr(settings, name)) for name in names}
        changed = [f"{name} {old!r} instead of {new!r}" for name, (old, new) in pairs.items() if old != new]
        if changed:
            raise ValueError(
                f"{directory} holds a study with {', '.join(changed)}: open it with its own settings, or"
                " choose another directory"
            )
        return
    if directory.exists() and any(not p.name.startswith(".") for p in directory.iterdir()):
        raise ValueError(f"{directory} is not empty and holds no study: choose another directory")
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / FILE, json.dumps(asdict(settings), indent=2) + "\n")
