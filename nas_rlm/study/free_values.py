"""Values of a trial that an evaluation need not give: counted, predicted or measured on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nas_rlm.devices.device import Device
from nas_rlm.devices.measurements import SpaceNetwork
from nas_rlm.devices.profiler import Failure, Plan, measure
from nas_rlm.search.exact_constraints import exact_values
from nas_rlm.search.settings import MEDIAN_LEVEL
from nas_rlm.study.records import Result
from nas_rlm.study.settings import StudySettings
from nas_rlm.study.suggestion import Suggester
from nas_rlm.study.trial import Trial
from nas_rlm.study.values import check_latency
from nas_rlm.utils import torch_settings
from search_spaces import SearchSpace


def counted_values(space: SearchSpace[Any], architecture: Any, settings: StudySettings) -> dict[str, float]:
    """Return `flops` and `params` of an architecture, those that are among the objectives."""
    return exact_values(space, architecture, settings.search.all_objectives)


@torch_settings.standard_on_one_thread()  # trainings use the processors meanwhile
def predicted_values(suggester: Suggester, architecture: Any, settings: StudySettings) -> dict[str, float]:
    """Return the medians of the objectives that the model predicts instead of an evaluation."""
    predictor, levels = suggester.predictor, [MEDIAN_LEVEL]
    values = predictor.predict(suggester.space, [architecture], settings.predicted, levels)[0, :, 0]
    return dict(zip(settings.predicted, values.tolist(), strict=True))


def with_measurement(result: Result, trial: Trial, settings: StudySettings, python: str = "") -> Result:
    """Return the result of a trial with the values that are measured; a failure where that fails.

    A network that was measured after an evaluation with a smaller budget is not measured again.

    Args:
        result: result of the evaluation.
        trial: the trial.
        settings: settings of the study.
        python: command that starts Python where the network runs.
    """
    if trial.budget_values:
        former = next(iter(trial.budget_values.values()))
        measured = {name: former[name] for name in settings.measured}
        return replace(result, values={**result.values, **measured}, details=trial.details)
    try:
        values, details = measured_values(trial.space, trial.parsed, settings, python)
    except ValueError as error:
        return replace(result, error=str(error))
    return replace(result, values={**result.values, **values}, details=details)


def measured_values(
    space: SearchSpace[Any], architecture: Any, settings: StudySettings, python: str = ""
) -> tuple[dict[str, float], Mapping[str, Any]]:
    """Measure the network of an architecture on the device of a study.

    Args:
        space: the search space.
        architecture: the architecture.
        settings: settings of the study.
        python: command that starts Python where the network runs.

    Returns:
        The values of `settings.measured`, and details of the measurement.

    Raises:
        ValueError: the device cannot run the network.
    """
    device = Device.parse(settings.device)
    needs_memory = f"memory/{device}" in settings.measured
    plan = Plan(seed=settings.seed, measure_memory=needs_memory, python=python)
    content = SpaceNetwork(space, architecture).onnx_bytes(device.batch_size)
    ((_, result),) = measure([(str(architecture), content)], device, plan)
    if isinstance(result, Failure):
        return checked_measurements({}, settings, result.error), {}
    found = {f"latency/{device}": result.median, f"memory/{device}": result.memory}
    details = {"p10": result.p10, "p90": result.p90, "spread": result.spread, **result.environment}
    return checked_measurements(found, settings), details


def checked_measurements(
    found: Mapping[str, float | None], settings: StudySettings, error: str = ""
) -> dict[str, float]:
    """Return the values of `settings.measured`.

    Args:
        found: what was measured on the device.
        settings: settings of the study.
        error: why the device could not run the network; empty if it could.

    Raises:
        ValueError: it could not, or a value is missing or a latency of 0.
    """
    if error:
        raise ValueError(f"{settings.device} cannot run it: {error}")
    values = {name: value for name in settings.measured if (value := found.get(name)) is not None}
    for name, value in values.items():
        check_latency(name, value)
    if len(values) < len(settings.measured):
        raise ValueError(f"the memory on {settings.device} could not be measured")
    return values
