"""The files of a study beside its log: the page, tables, the picture and the networks of the front."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_rlm.files import write_text
from nas_rlm.plotting.style import save_figure
from nas_rlm.study.front_files import command_line, write_front
from nas_rlm.study.page import RELOAD_SECONDS, StudyPage
from nas_rlm.study.results import draw_trials, front_of, trial_records
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.store import TrialStore
from search_spaces import SearchSpace


class StudyFiles:
    """Writes the results of a study into its directory.

    Args:
        directory: the directory.
        space: the search space.
        settings: settings of the study.
    """

    def __init__(self, directory: Path, space: SearchSpace[Any], settings: StudySettings) -> None:
        self.directory, self.settings = directory, settings
        self._page, self._last_page = StudyPage(space, settings), -math.inf

    def write(self, store: TrialStore) -> Path:
        """Write all files, and return the path of the page.

        Args:
            store: the trials, as they were read last.
        """
        front = front_of(self.settings, store.finished)
        if front:
            write_front(self.directory, front)
            save_figure(draw_trials(self.settings, store.trials), self.directory / "pareto.png")
            commands = [{"command": command_line(self.directory, trial)} for trial in front]
            records = trial_records(self.settings, front)
            table = [record | command for record, command in zip(records, commands, strict=True)]
            write_text(self.directory / "front.csv", _csv(table))
        write_text(self.directory / "trials.csv", _csv(trial_records(self.settings, store.trials)))
        return self._write_page(store, is_running=False)

    def write_page_if_due(self, store: TrialStore) -> None:
        """Write the page of a study that runs, unless it was written within the last seconds."""
        if time.monotonic() - self._last_page > RELOAD_SECONDS:
            self._write_page(store, is_running=True)

    def _write_page(self, store: TrialStore, is_running: bool) -> Path:
        path = self.directory / "report.html"
        write_text(path, self._page.render(store.trials, store.results, is_running))
        self._last_page = time.monotonic()
        return path


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same keys as a CSV table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
