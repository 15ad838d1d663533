"""Settings of a study, and their file study.json."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, StrictInt, TypeAdapter, ValidationError

from nas_rlm.data.omissions import is_storable, to_number
from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.devices.device import Device
from nas_rlm.files import check_writable, write_text
from nas_rlm.search.lookup import check_candidates
from nas_rlm.search.settings import Constraint, SearchSettings
from nas_rlm.search.table_space import TableSpace
from nas_rlm.study.store import LOCK
from nas_rlm.study.writing import locked, writing
from nas_rlm.utils.schema import NO_OTHER_KEYS, message
from nas_rlm.utils.validation import as_list, suggest
from search_spaces import SearchSpace
from search_spaces.wording import counted

FILE, PAGE = "study.json", "report.html"
FINGERPRINT_LENGTH = 16  # of a model, which follows that of the file of the space
# Settings that may differ when a study is opened again. Networks of a space whose file was changed are
# compared with those of the trials, see `StudyView`.
MAY_DIFFER = ("location", "model_name", "model")
# Columns of the tables of trials, which have a column for each objective beside these.
COLUMNS = (
    "number",
    "architecture",
    "state",
    "is_on_front",
    "budget",
    "cost",
    "seconds",
    "seed",
    "error",
    "command",
)
ADDITIONAL = "additional/"  # prefix of the columns of additional values
COMMON_KINDS = "accuracy", "perplexity", *EXACT_OBJECTIVES  # names like these are misspelt


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
        candidates: the architectures that may be evaluated; empty for all of the space.

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
    candidates: tuple[str, ...] = ()

    __pydantic_config__: ClassVar[ConfigDict] = NO_OTHER_KEYS  # applies where pydantic reads settings

    def __post_init__(self) -> None:
        names = self.search.all_objectives
        for name in names:
            if not isinstance(name, str) or not is_storable(name):
                raise ValueError(f"{name!r} is not an objective's name: expected KIND or KIND/NAME")
            if name in COLUMNS or name.startswith(ADDITIONAL):
                raise ValueError(
                    f"{name!r} is a column of the tables of trials: expected another name for the objective,"
                    f" such as {name.rpartition('/')[2]}/mine"
                )
            kind, slash, rest = name.partition("/")
            if kind not in COMMON_KINDS and (close := get_close_matches(kind, COMMON_KINDS, 1, 0.85)):
                raise ValueError(f"{name!r} is no known objective; did you mean {close[0]}{slash}{rest}?")
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
        numbers = [b for b in self.budgets if to_number(b) is not None and 0 < b < math.inf]
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
    def model_fingerprint(self) -> str:
        """Fingerprint of the model alone."""
        return self.model[-FINGERPRINT_LENGTH:]

    def among_candidates(self, space: SearchSpace[Any]) -> SearchSpace[Any]:
        """Return a space, or the subset of it that has the candidates."""
        return TableSpace(space, self.candidates) if self.candidates else space

    def checked_candidates(self, space: SearchSpace[Any], candidates: Sequence[Any]) -> tuple[str, ...]:
        """Return architectures in the notation of a space.

        Raises:
            ValueError: one is not of the space, or is not among the candidates of the study.
        """
        names, known = candidate_names(space, candidates), set(self.candidates)
        if known and (others := [name for name in names if name not in known]):
            raise ValueError(f"{others[0]} is not among the {counted(len(known), 'candidate')} of the study")
        return names

    @property
    def exhausted(self) -> str:
        """The message that there is no further architecture to suggest."""
        bounds = [c for c in self.constraints if Constraint.parse(c).objective in EXACT_OBJECTIVES]
        condition = f" that meets {' and '.join(bounds)}" if bounds else ""
        if self.candidates:
            return f"each of {counted(len(self.candidates), 'candidate')}{condition} has a trial"
        found = f"{condition} and was found" if bounds else ""
        return f"each architecture of {self.space}{found} has a trial"

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


def candidate_names(space: SearchSpace[Any], candidates: Sequence[Any]) -> tuple[str, ...]:
    """Return architectures, or their texts, in the notation of their space.

    Raises:
        ValueError: there are none, one is not of the space, or two are the same.
    """
    return tuple(check_candidates(space, list(map(str, as_list(candidates, "candidates")))))


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


def write_settings(directory: Path, settings: StudySettings) -> None:
    """Write the settings of a study."""
    write_text(directory / FILE, json.dumps(asdict(settings), indent=2) + "\n")


def is_study(directory: Path) -> bool:
    """Return whether a directory has a study."""
    return (directory / FILE).is_file()


def open_directory(directory: Path, settings: StudySettings) -> None:
    """Create the directory of a study with its settings, or check that it has the same ones.

    The settings of a study that has nothing else yet are replaced.

    Raises:
        ValueError: the directory holds other files or a study with other settings, or cannot be used.
    """
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: a study needs a directory of that name")
    try:
        str(directory.absolute()).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{str(directory)!r} is not valid UTF-8: choose another directory") from None
    check_writable(directory)
    # Listed first: another process may create the same study meanwhile.
    is_empty = not directory.exists() or all(path.name.startswith(".") for path in directory.iterdir())
    if not is_empty and not is_study(directory):
        raise ValueError(f"{directory} is not empty and holds no study: choose another directory")
    with writing(directory / FILE):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / LOCK):
            if not is_study(directory) or _has_settings_alone(directory):
                write_settings(directory, settings)
                return
    check_equal(read_settings(directory), settings, directory)


def _has_settings_alone(directory: Path) -> bool:
    """Whether a study has no trials, searches or other files yet: an error ended it, or it was just made."""
    return all(path.name.startswith(".") or path.name in (FILE, PAGE) for path in directory.iterdir())


def _difference(name: str, old: Any, new: Any) -> str:
    """Two values of a setting in a message.

    Of candidates, of which there may be many, it has the number and the first one.
    """
    if name == "candidates":
        old, new = (f"{len(value)} ({value[0]}, …)" if value else "none" for value in (old, new))
        return f"candidates {old} instead of {new}"
    if name == "model_fingerprint":
        return "another model"
    return f"{name} {old!r} instead of {new!r}"


def check_equal(existing: StudySettings, settings: StudySettings, directory: Path) -> None:
    """Refuse settings that are not those of the study of a directory.

    Raises:
        ValueError: they are not.
    """
    names = [*(f.name for f in fields(StudySettings) if f.name not in MAY_DIFFER), "model_fingerprint"]
    pairs = {name: (getattr(existing, name), getattr(settings, name)) for name in names}
    changed = [_difference(name, old, new) for name, (old, new) in pairs.items() if old != new]
    if changed:
        raise ValueError(
            f"{directory} holds a study with {', '.join(changed)}: open it with its own settings, or"
            " choose another directory"
        )
