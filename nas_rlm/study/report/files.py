"""The files of a study beside its log: the page, tables, the picture and the networks of the front."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from nas_rlm.files import write_text
from nas_rlm.plotting.style import save_figure
from nas_rlm.study.report.front_files import command_line, write_front
from nas_rlm.study.report.page import RELOAD_SECONDS, StudyPage
from nas_rlm.study.report.results import draw_trials, front_of, trial_records
from nas_rlm.study.settings import PAGE, StudySettings
from nas_rlm.study.store import TrialStore
from nas_rlm.study.writing import locked, writing
from search_spaces import SearchSpace

LOCK = ".files.lock"  # held while a process writes the files


class StudyFiles:
    """Writes the results of a study into its directory.

    Args:
        directory: the directory.
        space: the search space.
        settings: settings of the study.
    """

    def __init__(self, directory: Path, space: SearchSpace[Any], settings: StudySettings) -> None:
        self.directory, self.settings = directory, settings
        self._page = StudyPage(space, settings)
        self._last_page, self._num_events = -math.inf, -1  # when the page was written, and of how many events

    def write(self, store: TrialStore) -> Path:
        """Write all files, and return the path of the page.

        Args:
            store: the trials, which are read again.

        Raises:
            StorageError: a file cannot be written.
        """
        with locked(self.directory / LOCK):
            store.refresh()
            return self._write_all(store)

    def _write_all(self, store: TrialStore) -> Path:
        front = front_of(self.settings, store.finished)
        if front:
            with writing(self.directory / "front"):
                write_front(self.directory, front)
            picture = self.directory / "pareto.png"
            # A training may have set LaTeX, which need not be installed, and fails for names of objectives.
            with writing(picture), matplotlib.rc_context({"text.usetex": False}):
                save_figure(draw_trials(self.settings, store.trials), picture)
            commands = [{"command": command_line(self.directory, trial)} for trial in front]
            records = trial_records(self.settings, front)
            table = [record | command for record, command in zip(records, commands, strict=True)]
            self._write("front.csv", _csv(table))
        self._write("trials.csv", _csv(trial_records(self.settings, store.trials)))
        return self.write_page(store, is_running=False)

    def write_page_if_due(self, store: TrialStore) -> None:
        """Write the page of a study that runs, unless it was within the last seconds or nothing changed."""
        is_due = time.monotonic() - self._last_page > RELOAD_SECONDS
        if is_due and store.num_events != self._num_events:
            self.write_page(store, is_running=True)

    def write_page(self, store: TrialStore, is_running: bool) -> Path:
        """Write the page, and return its path.

        Args:
            store: the trials.
            is_running: whether the page is to reload itself.
        """
        page = self._page.render(store.trials, store.results, is_running)
        self._last_page, self._num_events = time.monotonic(), store.num_events
        return self._write(PAGE, page)

    def _write(self, name: str, text: str) -> Path:
        """Write a text file, and return its path."""
        path = self.directory / name
        with writing(path):
            write_text(path, text)
        return path


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same keys as a CSV table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
