"""Kinds of objectives: the unit, the direction and the valid range of a value.

The kind of `latency/pixel3` is `latency`, the part of its name before the slash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ACCURACY = "accuracy"
LATENCY_PREFIX = "latency/"
VALID_NAME = re.compile(r"[^,<>=@\s/]+(/[^,\s]+)?")


@dataclass(frozen=True)
class ObjectiveKind:
    """What is known of all objectives of a kind.

    Args:
        unit: unit of the values; empty if there is none or if it is not known.
        is_maximised: whether larger values are better.
        minimum: smallest valid value.
        maximum: largest valid value.
        zero_is_missing: whether benchmarks write 0 for a value that was not measured.
        max_plausible: larger values are errors, or in another unit.
    """

    unit: str = ""
    is_maximised: bool = False
    minimum: float = -math.inf
    maximum: float = math.inf
    zero_is_missing: bool = False
    max_plausible: float = math.inf


_SCORE = ObjectiveKind(is_maximised=True)  # a share or a percentage, or a score without bounds
_COST = ObjectiveKind()
_POSITIVE_SCORE = ObjectiveKind(is_maximised=True, minimum=0)
_POSITIVE_COST = ObjectiveKind(minimum=0)
SCORE_WORDS = {"acc", "accuracy", "auc", "f1", "fps", "iou", "miou", "score", "throughput", "top1", "top5"}
DEVICE_KINDS = ("latency", "throughput", "fps", "energy", "power", "memory", "time")  # of a device
COST_KINDS = ("flops", "params")
UNKNOWN = ObjectiveKind()
MAX_SECONDS = 0.5  # latencies that are all at most this may be in seconds instead of milliseconds
MIN_MICROSECONDS = 1e4  # latencies that are all at least this may be in microseconds or nanoseconds
MAX_MS = 1e9  # eleven days
KINDS = {
    "accuracy": ObjectiveKind("%", True, 0, 100),
    "throughput": ObjectiveKind("1/s", True, 0, max_plausible=1e15),
    "fps": ObjectiveKind("1/s", True, 0, max_plausible=1e15),
    "latency": ObjectiveKind("ms", False, 0, zero_is_missing=True, max_plausible=MAX_MS),
    "time": ObjectiveKind("ms", False, 0, max_plausible=MAX_MS),
    "memory": ObjectiveKind("bytes", False, 0, zero_is_missing=True, max_plausible=1e15),
    "flops": ObjectiveKind("MACs", False, 0, zero_is_missing=True),
    "params": ObjectiveKind("", False, 0, zero_is_missing=True),
    "energy": ObjectiveKind("J", False, 0, max_plausible=1e12),
    "power": ObjectiveKind("W", False, 0, max_plausible=1e9),
    **dict.fromkeys(
        ("top1", "top5", "iou", "miou", "map", "f1", "auc", "dice", "precision", "recall", "bleu", "rouge"),
        _POSITIVE_SCORE,
    ),
    **dict.fromkeys(("psnr", "ssim", "r2", "likelihood", "log_likelihood"), _SCORE),
    **dict.fromkeys(("perplexity", "mae", "mse", "rmse", "fid", "wer", "cer"), _POSITIVE_COST),
    **dict.fromkeys(("loss", "error", "nll"), _COST),
}


def kind_of(objective: str) -> ObjectiveKind:
    """Return the kind of an objective; upper and lower case are the same.

    Examples:
        >>> kind_of("throughput/mybox").is_maximised, kind_of("mAP").is_maximised, kind_of("loss/val").minimum
        (True, True, -inf)
    """
    return KINDS.get(objective.split("/")[0].lower(), UNKNOWN)


def is_known_kind(objective: str) -> bool:
    """Return whether the kind of an objective is one of `KINDS`."""
    return objective.split("/")[0].lower() in KINDS


def resembles_score(objective: str) -> bool:
    """Return whether an objective of an unknown kind, which is minimised, has the name of a score.

    Examples:
        >>> [resembles_score(name) for name in ("val_acc", "accuracy/val", "val_loss")]
        [True, False, False]
    """
    words = re.split(r"[^a-z0-9]+", objective.lower())
    return not is_known_kind(objective) and not SCORE_WORDS.isdisjoint(words)


def depends_on_task(objective: str) -> bool:
    """Return whether an objective is learnt in training for a task, and not a property of network and device.

    Examples:
        >>> [depends_on_task(name) for name in ("accuracy/cifar100", "perplexity", "latency/pixel3", "flops")]
        [True, True, False, False]
    """
    return objective.split("/")[0].lower() not in DEVICE_KINDS + COST_KINDS


def is_of_training(objective: str) -> bool:
    """Return whether an objective is of a known kind that is learnt in training, such as a loss.

    It does not depend on how many inputs a network reads at once.

    Examples:
        >>> [is_of_training(name) for name in ("accuracy/cifar100", "loss/val", "latency/pixel3", "my_count")]
        [True, True, False, False]
    """
    return is_known_kind(objective) and depends_on_task(objective)


def is_accuracy(objective: str) -> bool:
    """Return whether an objective is `accuracy` or the accuracy on one data set."""
    return objective.split("/")[0] == ACCURACY


def expected_value(objective: str) -> str:
    """Return what is valid for an objective, for error messages.

    Examples:
        >>> expected_value("accuracy"), expected_value("perplexity"), expected_value("loss")
        ('a percentage', 'a number, 0 or more', 'a number')
        >>> expected_value("latency/pixel3")
        'a number from 0 to 1e+09 ms'
    """
    kind = kind_of(objective)
    if kind.maximum < math.inf:
        return "a percentage"
    if kind.max_plausible < math.inf:
        return f"a number from {kind.minimum:g} to {kind.max_plausible:g} {kind.unit}"
    return "a number" if kind.minimum < 0 else "a number, 0 or more"


@dataclass(frozen=True)
class Declaration:
    """What the author of a table declares of an objective.

    Args:
        unit: unit of the values; empty for that of the kind.
        direction: `maximize` or `minimize`; empty for that of the kind.

    Raises:
        ValueError: the direction is another word.
    """

    unit: str = ""
    direction: str = ""

    def __post_init__(self) -> None:
        if self.direction not in ("", "maximize", "minimize"):
            raise ValueError(f"direction is {self.direction!r}, expected maximize or minimize")


def check_declaration(objective: str, declaration: Declaration) -> None:
    """Refuse a declaration that contradicts the kind of the objective.

    Raises:
        ValueError: the unit or the direction is not that of the kind.
    """
    unit = kind_of(objective).unit
    if declaration.unit and unit and declaration.unit != unit:
        raise ValueError(f"{objective} is in {unit}, not {declaration.unit}: expected values in {unit}")
    if declaration.direction == "minimize" and kind_of(objective).is_maximised:
        raise ValueError(
            f"{objective} is maximised: expected the name of a cost for values to minimise, such as"
            f" error/{objective.replace('/', '-')}"
        )


def declared_maximised(declarations: Mapping[str, Declaration]) -> tuple[str, ...]:
    """Return the objectives that are declared to be maximised."""
    return tuple(name for name, declared in declarations.items() if declared.direction == "maximize")


def unit_warnings(columns: Mapping[str, Sequence[float]]) -> list[str]:
    """Return a warning for each accuracy and each latency that may be in another unit.

    These are accuracies in fractions, and latencies in seconds, microseconds or nanoseconds.

    Args:
        columns: the values of each objective.
    """
    latencies = {n: v for n, v in columns.items() if n.startswith(LATENCY_PREFIX) and len(v) > 1}
    seconds = [
        f"{name} is at most {max(values):g}: expected milliseconds, and these may be seconds"
        for name, values in latencies.items()
        if 0 < max(values) <= MAX_SECONDS
    ]
    microseconds = [
        f"{name} is at least {min(values):g}: expected milliseconds, and these may be microseconds or"
        " nanoseconds"
        for name, values in latencies.items()
        if min(values) >= MIN_MICROSECONDS
    ]
    return (
        seconds
        + microseconds
        + [
            f"{name} is at most {max(values):g}: expected percentages, and these may be fractions"
            for name, values in columns.items()
            if is_accuracy(name) and len(values) > 1 and 0 < max(values) <= 1
        ]
    )
