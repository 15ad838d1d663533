"""The trials of a study's directory, to look at: front, table, picture and report page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nas_rlm.data.tables import Row
from nas_rlm.plotting.style import check_picture_path, save_figure
from nas_rlm.study.report.files import StudyFiles
from nas_rlm.study.report.results import draw_trials, front_of, result_rows, trial_records
from nas_rlm.study.settings import FILE, StudySettings, check_equal, read_settings, write_settings
from nas_rlm.study.store import LOCK, TrialStore
from nas_rlm.study.trial import FAILED, RUNNING, Trial
from nas_rlm.study.writing import locked, writing
from nas_rlm.utils.validation import is_whole_number
from search_spaces import SearchSpace
from search_spaces.loading import network_fingerprint
from search_spaces.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NUM_CHECKED = 10  # trials of a space whose file was not changed


class StudyView:
    """A study without its model; `nas_rlm.Study` adds what changes it.

    Attributes:
        directory: directory of the study, as an absolute path.
        settings: its settings.
        space: its search space.
    """

    directory: Path
    settings: StudySettings
    space: SearchSpace[Any]

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Open the study of a directory with its own settings.

        Args:
            directory: the directory.

        Raises:
            FileNotFoundError: it has no study.
            ValueError: a file is damaged.
        """
        study, settings = cls.__new__(cls), read_settings(Path(directory))
        study._open(Path(directory), settings, settings.load_space())
        study._store.refresh()
        return study

    def _open(self, directory: Path, settings: StudySettings, space: SearchSpace[Any]) -> None:
        self.directory = directory.absolute()  # an evaluation may change the working directory
        self.settings, self.space = settings, space
        self._store = TrialStore(self.directory, space, settings.seed, settings.budgets)
        self._store.check = self._check_settings
        self._files = StudyFiles(self.directory, space, settings)

    def _check_settings(self) -> None:
        """Refuse settings of the directory that are no longer those of this study."""
        check_equal(read_settings(self.directory), self.settings, self.directory)

    def _check_space(self, model: str) -> None:
        """Refuse a space if networks of trials are not those that it has, other than of failed trials.

        Where its file is that with which the study was opened before, the first trials are checked: a class
        in a notebook has no file, and an object may have other attributes. Otherwise all are, and the file
        counts as that of the study.

        Args:
            model: fingerprint of the present file of the space and of the model.

        Raises:
            ValueError: they differ, or an architecture of the log is none of the space any more.
        """
        settings = read_settings(self.directory)
        is_same_file = settings.model == model
        for trial in self.trials[:NUM_CHECKED] if is_same_file else self.trials:
            is_of_older_version = is_same_file and not trial.network_fingerprint
            if trial.state == FAILED or is_of_older_version:
                continue
            if network_fingerprint(self.space, self._parsed(trial.architecture)) != trial.network_fingerprint:
                what = f"the network of trial {trial.number}, {trial.architecture},"
                raise ValueError(self._other_space(what))
        if is_same_file:
            return
        for name in self._store.candidates:
            self._parsed(name)
        with writing(self.directory / FILE), locked(self.directory / LOCK):
            write_settings(self.directory, replace(settings, model=model))

    def _parsed(self, name: str) -> Any:
        """The architecture of a text in the log."""
        try:
            return self.space.parse(name)
        except ValueError as error:
            raise ValueError(f"{self._other_space(f'the architecture {name}')}: {error}") from None

    def _other_space(self, what: str) -> str:
        return (
            f"{self.directory} holds a study of another version of {self.space.name}, in which {what} was"
            " another one: choose another directory"
        )

    def __repr__(self) -> str:
        settings, trials = self.settings, self.trials
        return (
            f"{type(self).__name__}({settings.space!r}, {list(settings.objectives)},"
            f" {str(self.directory)!r}: {counted(len(trials), 'trial')}, {len(self.front)} on the front)"
        )

    @property
    def trials(self) -> list[Trial]:
        """All trials by number, also those of other processes."""
        self._store.refresh()
        return list(self._store.trials)

    @property
    def pending(self) -> list[Trial]:
        """The trials that were asked for and have no result yet, also those of a process that was killed."""
        return [trial for trial in self.trials if trial.state == RUNNING]

    @property
    def rows(self) -> list[Row]:
        """The results so far as rows of the learned objectives.

        See `nas_rlm.study.report.results.result_rows`. Networks that a user's own space cannot build are left
        out.
        """
        self._store.refresh()
        rows = result_rows(self.settings, self._store.results)
        return [row for row in rows if not self.space.network_error(row.arch_str)]

    @property
    def cost(self) -> float:
        """Cost of all evaluations: in a study with budgets the budget that they used, otherwise seconds."""
        self._store.refresh()
        return self._store.cost

    @property
    def front(self) -> list[Trial]:
        """The complete trials on the Pareto front that meet the constraints, by the first objective.

        Of trials with equal values it has one.
        """
        self._store.refresh()
        return front_of(self.settings, self._store.finished)

    @property
    def best(self) -> Trial:
        """The complete trial that is best in the first objective and meets the constraints.

        Raises:
            ValueError: there is none yet.
        """
        if not (found := self.front):
            bounds = " and ".join(self.settings.constraints)
            condition = f" that meets {bounds}" if bounds else ""
            raise ValueError(f"none of {counted(len(self.trials), 'trial')} is complete{condition}")
        return found[0]

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record per trial, for example for pandas.

        Returns:
            `number`, `architecture`, `state`, a value of each objective, `is_on_front`, `cost`, `seed`,
            `error`, and `additional/NAME` for further numbers that evaluations gave; in a study with budgets
            also `budget`, the largest one that the trial reached, and `seconds`.
        """
        self._store.refresh()
        return trial_records(self.settings, self._store.trials)

    def plot(
        self, path: str | os.PathLike[str] | None = None, pairs: Sequence[tuple[str, str]] = ()
    ) -> Figure:
        """Draw the trials and the front; running trials at their predictions.

        Args:
            path: picture to write (.png, .svg, .pdf or .jpg); None writes none.
            pairs: x and y objective of each panel; by default each other objective against the first.

        Returns:
            The figure, which a notebook displays.

        Raises:
            ValueError: no trial is complete, the path has another suffix, or a pair has an unknown objective.
        """
        if path is not None:
            check_picture_path(Path(path))
        figure = draw_trials(self.settings, self.trials, pairs)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def report(self) -> Path:
        """Write the results into the directory, also of a study that is not finished.

        These are report.html (a page with all trials), trials.csv, and for the front front.csv, pareto.png
        and front/: for each network an ONNX file, a Python file with the torch module and the command that
        trains it again, and the trained weights if the evaluation returned any.

        Returns:
            The path of the page.
        """
        return self._files.write(self._store)

    def _trial(self, trial: Trial | int) -> Trial:
        """The trial of a number, or of an object of this study."""
        self._store.refresh()
        number = trial.number if isinstance(trial, Trial) else trial
        if not is_whole_number(number) or not 0 <= number < len(self._store.trials):
            raise ValueError(f"there is no trial {number!r}: the study has {len(self._store.trials)}")
        found = self._store.trials[number]
        if isinstance(trial, Trial) and (trial.architecture, trial.seed) != (found.architecture, found.seed):
            raise ValueError(
                f"trial {number} with {trial.architecture} is of another study: that of {self.directory} has"
                f" {found.architecture}"
            )
        return found
