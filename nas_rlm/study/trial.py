"""Trials: an architecture to evaluate, and what its evaluation gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from search_spaces import SearchSpace

if TYPE_CHECKING:
    from torch import fx

RUNNING, PAUSED, COMPLETE, FAILED = "running", "paused", "complete", "failed"
WEIGHTS, ERROR, OUTPUT = "weights.safetensors", "error.txt", "output.txt"  # files in a trial's directory

Values = Mapping[str, float] | float  # by objective; a number where there is a single objective to give


@dataclass(eq=False)
class Trial:
    """An architecture of a study, and what its evaluation gave so far.

    Examples:
        >>> def train(trial):  # doctest: +SKIP
        ...     network = trial.network()
        ...     for epoch in range(10):
        ...         train_one_epoch(network)
        ...         trial.report(epoch, {"accuracy": test(network)})
        ...     return {"accuracy": test(network)}, network.state_dict()

    Args:
        number: position in the study, from 0.
        architecture: the architecture in its space's notation.
        seed: seed of the initial weights; `numpy`, `random` and `torch` are seeded with it as well before the
            evaluation, or with one derived from it where a training with a smaller budget goes on.
        space: the search space.
        directory: a directory of the trial's own, for checkpoints and other files; in a study with budgets
            that of the present or last evaluation.

    Attributes:
        state: `running`, `complete` or `failed`; `paused` after an evaluation with less than the full budget.
        values: value of each objective and constrained objective, of a trial that is complete or paused.
        additional: further numbers that the last evaluation gave; they are no objectives.
        budget: budget of the present or last evaluation, in a study with budgets; otherwise None.
        budget_values: by budget, the values of evaluations so far, in a study with budgets.
        resume_from: directory of the evaluation with the budget before, or None if it starts from scratch.
        steps: by step, the values that were reported during the evaluation, with additional ones.
        predicted: by objective, the quantiles at .1, .5 and .9 that were predicted when the trial was asked
            for; empty while there were too few trials to predict.
        cost: budget that its evaluations used in total, in a study with budgets; otherwise seconds.
        seconds: seconds that its evaluations took.
        error: why it failed; error.txt in its directory has the traceback.
        attempts: number of evaluations that were started.
        environment: description of the machine and the packages of the evaluation.
        details: details of the measurement on the device.
        evaluation: `FILE.py:FUNCTION` or `MODULE:FUNCTION` that evaluated it, if it is known.
        network_fingerprint: hash of the network, of a trial of a user's own space; otherwise empty.
        owner: identifies the process that evaluates it; empty for `Study.ask`.
    """

    number: int
    architecture: str
    seed: int
    space: SearchSpace[Any] = field(repr=False)
    directory: Path = field(repr=False)
    state: str = RUNNING
    values: dict[str, float] = field(default_factory=dict)
    additional: dict[str, float] = field(default_factory=dict, repr=False)
    budget: float | None = None
    budget_values: dict[float, dict[str, float]] = field(default_factory=dict, repr=False)
    resume_from: Path | None = field(default=None, repr=False)
    steps: dict[int, dict[str, float]] = field(default_factory=dict, repr=False)
    predicted: dict[str, list[float]] = field(default_factory=dict, repr=False)
    cost: float = 0.0
    seconds: float = field(default=0.0, repr=False)
    error: str = ""
    attempts: int = field(default=0, repr=False)
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    evaluation: str = field(default="", repr=False)
    network_fingerprint: str = field(default="", repr=False)
    owner: str = field(default="", repr=False)
    reporter: Callable[[int, Values], None] | None = field(default=None, repr=False)

    @property
    def parsed(self) -> Any:
        """The architecture as an object of the space."""
        return self.space.parse(self.architecture)

    @property
    def last_values(self) -> dict[str, float]:
        """The values of the last step that was reported; empty if there is none."""
        return self.steps[max(self.steps)] if self.steps else {}

    @property
    def next_cost(self) -> float:
        """The budget that its present evaluation adds; 0 in a study without budgets."""
        return (self.budget or 0) - max(self.budget_values, default=0)

    @property
    def weights_file(self) -> Path | None:
        """The file of trained weights, or None if the evaluation returned none."""
        path = self.directory / WEIGHTS
        return path if path.is_file() else None

    def network(self) -> fx.GraphModule:
        """Return the network as a torch module in training mode, with initial weights of the trial's seed.

        Raises:
            ValueError: the network has an operator that has no torch module, see `trial.onnx`.
        """
        from nas_rlm.graph.torch_module import to_torch

        return to_torch(self.onnx())

    def onnx(self) -> onnx.ModelProto:
        """Return the network as an ONNX model with initial weights of the trial's seed."""
        return self.space.to_onnx(self.parsed, weights=True, seed=self.seed)

    def report(self, step: int, values: Values) -> None:
        """Record values during the evaluation, such as the accuracy after an epoch.

        They are the trial's learning curve. Where the evaluation returns no values, those of the last step
        count.

        Args:
            step: number of the epoch or step; of two reports of one step the later one counts.
            values: values by objective; a number where there is a single objective to give.

        Raises:
            ValueError: a value is not finite, the objective is unknown, or the trial is not running.
        """
        if self.reporter is None or self.state != RUNNING:
            raise ValueError(f"trial {self.number} is {self.state}: only a running trial of a study reports")
        self.reporter(step, values)
