"""The report page of a study: trials, front, hypervolume, learning curves, genes and networks in one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nas_rlm.search.exact_constraints import exact_values
from nas_rlm.search.report import graph_view, render_report
from nas_rlm.study.records import TrialResult
from nas_rlm.study.report.results import failure_summary, failures_by_type, front_of, search_result
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import COMPLETE, ERROR, OUTPUT, PAUSED, RUNNING, WEIGHTS, Trial
from nas_rlm.text import from_architecture
from nas_rlm.utils.axes import axis_label
from search_spaces import SearchSpace
from search_spaces.wording import counted

TEMPLATE = Path(__file__).with_name("page.html")
RELOAD_SECONDS = 10  # of the page while the study runs
NOT_VALID = {"": {"nodes": [{"label": "not valid", "reads": [-1], "calls": ""}]}}  # instead of a network


class StudyPage:
    """The page of a study, written again as trials finish.

    Args:
        space: the search space.
        settings: settings of the study.
    """

    def __init__(self, space: SearchSpace[Any], settings: StudySettings) -> None:
        self.space, self.settings = space, settings
        self._graphs: dict[int, dict[str, Any]] = {}  # by trial, since they take time

    def render(self, trials: Sequence[Trial], results: Sequence[TrialResult], is_running: bool) -> str:
        """Return the page as HTML.

        Args:
            trials: all trials.
            results: the results of evaluations in the order in which they arrived.
            is_running: whether the page is to reload itself.
        """
        refresh = f'<meta http-equiv="refresh" content="{RELOAD_SECONDS}">' if is_running else ""
        page = render_report(self.info(trials, results), TEMPLATE)
        return page.replace("REFRESH\n", f"{refresh}\n" if refresh else "", 1)

    def info(self, trials: Sequence[Trial], results: Sequence[TrialResult]) -> dict[str, Any]:
        """Return the data that the page shows, ready for JSON; see `render`."""
        settings, names = self.settings, self.settings.search.all_objectives
        has_costs = any(result.total_cost for result in results)
        total_cost = {
            result.trial.number: result.total_cost if has_costs else position
            for position, result in enumerate(results, 1)
        }
        last = {result.trial.number: position for position, result in enumerate(results)}
        finished = [results[position].trial for position in sorted(last.values())]  # each trial once
        complete = [trial for trial in finished if trial.state == COMPLETE]
        result = search_result(settings, complete)
        feasible = {t.number for t, is_met in zip(complete, result.feasible.tolist(), strict=True) if is_met}
        on_front = {trial.number for trial in front_of(settings, finished)}
        reference = self._reference(complete)
        hypervolume = [
            [total_cost[trial.number], result.truncated(i).hypervolume(list(reference.values()))]
            for i, trial in enumerate(complete, 1)
            if reference
        ]
        num_running, num_paused = (sum(t.state == state for t in trials) for state in (RUNNING, PAUSED))
        paused = f" {num_paused} paused," if settings.budgets else ""
        by_type = failures_by_type(finished)
        num_failed = sum(map(len, by_type.values()))
        return {
            "title": f"{settings.space}: {', '.join(settings.objectives)}",
            "subtitle": f"{counted(len(complete), 'trial')} complete, {num_failed} failed,{paused}"
            f" {num_running} running; {len(on_front)} on the front",
            "failures": failure_summary(finished),
            "failed": {kind: [trial.number for trial in failed] for kind, failed in by_type.items()},
            "objectives": [
                {
                    "name": name,
                    "label": axis_label(name),
                    "maximised": settings.search.is_maximised(name),
                    "reference": reference.get(name),
                }
                for name in names
            ],
            "cost_unit": self._cost_unit(has_costs),
            "genes": list(self.space.genes),
            "hypervolume": hypervolume,
            "trials": [
                self._entry(trial, total_cost.get(trial.number))
                | {"on_front": trial.number in on_front, "feasible": trial.number in feasible}
                for trial in trials
            ],
            "settings": {
                name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
                for name, value in (asdict(settings) | {"candidates": len(settings.candidates)}).items()
                if value
            },
        }

    def _cost_unit(self, has_costs: bool) -> str:
        """The unit of costs; without any, evaluations are numbered."""
        if not has_costs:
            return "number"
        return "epochs, or other units of the budget," if self.settings.budgets else "seconds"

    def _entry(self, trial: Trial, total_cost: float | None) -> dict[str, Any]:
        """The data of a trial."""
        names, has_values = self.settings.search.all_objectives, trial.state in (COMPLETE, PAUSED)
        directory = trial.directory.relative_to(
            trial.directory.parents[0 if trial.budget is None else 1].parent
        )
        current = self._current_values(trial) if trial.state == RUNNING else {}
        files = [name for name in (OUTPUT, ERROR, WEIGHTS) if (trial.directory / name).is_file()]
        return {
            "number": trial.number,
            "architecture": trial.architecture,
            "state": trial.state,
            "seed": trial.seed,
            "values": [trial.values[name] for name in names] if has_values else [],
            "predicted": [trial.predicted[name] for name in names] if trial.predicted else [],
            "current": [current.get(name) for name in names] if current else [],
            "additional": trial.additional,
            "steps": _curve(trial),
            "budget": max(trial.budget_values, default=None),
            "cost": trial.cost,
            "seconds": trial.seconds,
            "total_cost": total_cost,
            "error": trial.error,
            "genes": self.space.encode(trial.parsed).tolist(),
            "files": [f"{directory}/{name}" for name in files],
            "graph": self._graph(trial),
        }

    def _current_values(self, trial: Trial) -> dict[str, float]:
        """The values of a running trial so far: counted ones, and the last ones of its training."""
        exact = {}
        if not self.space.network_error(trial.parsed):
            exact = exact_values(self.space, trial.parsed, self.settings.search.all_objectives)
        return {**trial.values, **exact, **trial.last_values}

    def _graph(self, trial: Trial) -> dict[str, Any]:
        """The network of a trial as the page draws it; one node for a network that is not valid."""
        if trial.number not in self._graphs:
            is_valid = not self.space.network_error(trial.parsed)
            view = graph_view(from_architecture(self.space, trial.parsed)) if is_valid else NOT_VALID
            self._graphs[trial.number] = view
        return self._graphs[trial.number]

    def _reference(self, complete: Sequence[Trial]) -> dict[str, float]:
        """The reference point by objective: the worst values of the trials, since trainings differ."""
        if not complete:
            return {}
        is_maximised = self.settings.search.is_maximised
        return {
            name: (min if is_maximised(name) else max)(trial.values[name] for trial in complete)
            for name in self.settings.objectives
        }


def _curve(trial: Trial) -> list[tuple[float, dict[str, float]]]:
    """The learning curve of a trial: in a study with budgets by budget, and while it runs by step as well."""
    if trial.budget_values and trial.state != RUNNING:
        return sorted(trial.budget_values.items())
    former = [(budget, v) for budget, v in trial.budget_values.items() if budget not in trial.steps]
    return sorted([*former, *trial.steps.items()], key=lambda point: point[0])
