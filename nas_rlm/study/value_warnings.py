"""Warnings of results of trials: of their values, weights, networks and failures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from nas_rlm.data.objective_kinds import resembles_score, unit_warnings
from nas_rlm.data.omissions import is_storable
from nas_rlm.study.evaluation import Outcome
from nas_rlm.study.report.results import error_type, front_of
from nas_rlm.study.report.trained_weights import weights_of_network
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import COMPLETE, FAILED, PAUSED, Trial
from nas_rlm.utils.validation import listed
from search_spaces.loading import network_fingerprint

MIN_VALUES_TO_CHECK = 3  # of an objective, to tell whether they are in another unit


def warn_of_minimised_scores(settings: StudySettings, stacklevel: int) -> None:
    """Warn of objectives that are minimised and have names of scores.

    Args:
        settings: settings of a study.
        stacklevel: as of `warnings.warn`, from this function.
    """
    for name in settings.objectives:
        if resembles_score(name) and not settings.search.is_maximised(name):
            warnings.warn(
                f"{name} is minimised: if larger values are better, give it as maximise (--maximise) too,"
                " or choose a name with its kind, such as accuracy/val",
                stacklevel=stacklevel,
            )


class ValueWarnings:
    """Warns once of each kind.

    Args:
        settings: settings of the study.
    """

    def __init__(self, settings: StudySettings) -> None:
        self.settings = settings
        self._has_checked_units = False
        self._named_failures: set[str] = set()  # types of errors
        self._named_additional: set[str] = set()
        self._has_checked_weights = self._has_named_network = False

    def name_additional(self, trial: Trial, outcome: Outcome) -> None:
        """Warn of values that a trial gave or reported beside its objectives, of each name once."""
        reported = {name for values in trial.steps.values() for name in values}
        kept = {*outcome.additional, *reported.difference(self.settings.evaluated)} - self._named_additional
        ignored = dict.fromkeys(name for name in outcome.ignored if name not in self._named_additional)
        self._named_additional |= {*kept, *ignored}
        if not (kept or ignored):
            return
        objectives = " and ".join(self.settings.evaluated)
        texts = [f"{listed(sorted(kept))}: kept as additional values, no objectives"] if kept else []
        known = [name for name in ignored if name in self.settings.search.all_objectives]
        texts += [f"{listed(known)}: not used, but counted, measured or predicted"] if known else []
        unstorable = [name for name in ignored if not is_storable(name)]
        shown = listed([repr(name) for name in unstorable])
        texts += (
            [f"{shown}: not kept, names need characters other than blanks and , < > = @"]
            if unstorable
            else []
        )
        others = [name for name in ignored if name not in {*known, *unstorable}]
        texts += [f"{listed(others)}: not kept, no finite numbers"] if others else []
        warnings.warn(f"trial {trial.number} gave more than {objectives}: {'; '.join(texts)}", stacklevel=3)

    def name_failure(self, trial: Trial) -> None:
        """Warn of a trial that failed, once for each type of error."""
        if trial.state != FAILED or (kind := error_type(trial.error)) in self._named_failures:
            return
        self._named_failures.add(kind)
        warnings.warn(
            f"trial {trial.number} failed: {trial.error}; its directory is {trial.directory}, and later"
            f" failures {f'with {kind}' if kind else 'of this kind'} have no warning",
            stacklevel=3,
        )

    def name_unmet_constraints(self, finished: Sequence[Trial]) -> None:
        """Warn if there are complete trials and none meets the constraints."""
        is_any_complete = any(trial.state == COMPLETE for trial in finished)
        if is_any_complete and not front_of(self.settings, finished):
            warnings.warn(
                f"no trial meets {' and '.join(self.settings.constraints)}: there is no front", stacklevel=4
            )

    def check_weights(self, trial: Trial) -> None:
        """Warn if the weights that the first trial gave are not of its network."""
        if self._has_checked_weights or not trial.weights_file:
            return
        self._has_checked_weights = True
        if weights_of_network(trial.weights_file, trial.onnx()) is None:
            warnings.warn(
                f"the weights that trial {trial.number} gave are not those of trial.network(): they are kept,"
                " but files of the front have initial weights; expected the state_dict of trial.network()",
                stacklevel=3,
            )

    def check_network(self, trial: Trial) -> None:
        """Warn if the network of a trial is not that which it had when it began; once."""
        if self._has_named_network or not trial.network_fingerprint or trial.state == FAILED:
            return
        if network_fingerprint(trial.space, trial.parsed) != trial.network_fingerprint:
            self._has_named_network = True
            warnings.warn(
                f"the network of trial {trial.number}, {trial.architecture}, is not the one that it had when"
                f" it began: write of {trial.space.name} gives another network each time, or the space was"
                " changed meanwhile; its values may be those of another network",
                stacklevel=3,
            )

    def check_units(self, trials: Sequence[Trial]) -> None:
        """Warn of values that may be in another unit, when some trials have values."""
        if self._has_checked_units:
            return
        values = [trial.values for trial in trials if trial.state in (COMPLETE, PAUSED)]
        if len(values) < MIN_VALUES_TO_CHECK:
            return
        self._has_checked_units = True
        columns = {name: [of_trial[name] for of_trial in values] for name in self.settings.evaluated}
        for message in unit_warnings(columns):
            warnings.warn(message, stacklevel=3)
