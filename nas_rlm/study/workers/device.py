"""Workers of a study without evaluations: a device that measures the networks of several trials together."""

from __future__ import annotations

import time
from pathlib import Path

from nas_rlm.data.tables import Row
from nas_rlm.devices.device import Device
from nas_rlm.devices.measurements import MeasureFunction, SpaceNetwork, measurement_details, profile
from nas_rlm.devices.profiler import SHUFFLE_GROUP_SIZE, Plan, measure
from nas_rlm.study.evaluation import Outcome
from nas_rlm.study.free_values import checked_measurements
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.trial import Trial
from nas_rlm.study.workers.pool import Finished, Workers

FIRST_BATCH_SIZE, MIN_BATCH_SIZE = 10, 5
BATCH_SHARE = 0.5  # of the number of networks that were measured before


class DeviceWorkers(Workers):
    """Measures the networks of trials, in batches that grow with the number of measured networks.

    A network that the table has is not measured again.

    Args:
        settings: settings of the study.
        table: parquet table to which measurements are added.
        num_results: number of trials of the study that have a result.
        python: command that starts Python where networks run.
        measure_function: function that measures, see `nas_rlm.devices.measurements.profile`.
    """

    def __init__(
        self,
        settings: StudySettings,
        table: Path,
        num_results: int,
        python: str = "",
        measure_function: MeasureFunction = measure,
    ) -> None:
        self.settings, self.table, self.measure_function = settings, table, measure_function
        self.device = Device.parse(settings.device)
        needs_memory = any(name.startswith("memory/") for name in settings.measured)
        self.plan = Plan(seed=settings.seed, measure_memory=needs_memory, python=python)
        self._num_results = num_results
        self._waiting: list[Trial] = []

    @property
    def batch_size(self) -> int:
        """Number of networks that are measured together."""
        if not self._num_results:
            return FIRST_BATCH_SIZE
        return min(max(MIN_BATCH_SIZE, int(BATCH_SHARE * self._num_results)), SHUFFLE_GROUP_SIZE)

    @property
    def num_busy(self) -> int:
        """Number of trials that wait for their measurement."""
        return len(self._waiting)

    @property
    def num_free(self) -> int:
        """Number of trials that can be started now: none while others wait."""
        return 0 if self._waiting else self.batch_size

    def start(self, trial: Trial) -> None:
        """Add a trial to the batch."""
        self._waiting.append(trial)

    def wait(self) -> Finished:
        """Measure the batch."""
        start = time.monotonic()
        networks = [SpaceNetwork(trial.space, trial.parsed) for trial in self._waiting]
        table = profile(networks, self.device, self.table, self.plan, measure_function=self.measure_function)
        rows = {row.arch_str: row for row in table.rows}
        seconds = (time.monotonic() - start) / len(self._waiting)
        outcomes = [(trial, self._outcome(rows[trial.architecture], seconds)) for trial in self._waiting]
        self._waiting, self._num_results = [], self._num_results + len(outcomes)
        return outcomes

    def _outcome(self, row: Row, seconds: float) -> Outcome:
        """The outcome of a trial from the row of its network."""
        details = measurement_details(row)[str(self.device)]
        try:
            values = checked_measurements(row.targets, self.settings, details.get("error", ""))
        except ValueError as error:
            return Outcome(error=str(error), cost=seconds)
        shown = {name: details[name] for name in ("p10", "p90", "spread")} | details["environment"]
        return Outcome(values, cost=seconds, details=shown)

    def close(self) -> None:
        """Forget the batch."""
        self._waiting.clear()
