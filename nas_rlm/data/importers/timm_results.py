"""The result tables of timm (pytorch-image-models): accuracies on ImageNet and speeds on a device."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from nas_rlm.data.network_files import ACCURACIES, family_of_model
from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from nas_rlm.files import read_text
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text.parser import parse_network
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import suggest

SPACE = "timm"
MODEL_COLUMN = "model"
SIZE_COLUMNS = ("img_size", "infer_img_size")
NUM_CLASSES = 1000  # of ImageNet
ACCURACY_COLUMN, SPEED_COLUMN = "top1", "infer_samples_per_sec"
# Words of a checkpoint's tag that name other data or a teacher.
OTHER_TRAINING = {"dist", "distill", "distilled", "ft", "jft", "kd", "lc", "ssld", "swag"}

Results = dict[tuple[str, int], dict[str, float]]  # objectives of an architecture at an image size


def read_rows(path: Path, omissions: Omissions, device: str = "", models: Sequence[str] = ()) -> list[Row]:
    """Read a result table, and build each network with timm.

    Args:
        path: results-imagenet.csv, or a table of speeds, whose name starts with benchmark-infer.
        omissions: counts the entries that are not valid.
        device: name of the device of a table of speeds.
        models: patterns such as resnet*; only the architectures that match one of them are built.
    """
    results = read_results(path, omissions, device, models)
    rows = []
    for (model, size), targets in progress_bar(results.items(), "networks", total=len(results), unit="net"):
        name = f"{model}@{size}"
        with omissions.skip(name):
            rows.append(Row(SPACE, "", targets, _text(model, size), name, group=family_of_model(model)))
    return rows


def read_results(path: Path, omissions: Omissions, device: str = "", models: Sequence[str] = ()) -> Results:
    """Return the values of each architecture and image size in a result table.

    A table of accuracies has a line for each checkpoint. `accuracy/imagenet` is the best top-1 accuracy of
    checkpoints whose tag names ImageNet-1k alone, `accuracy/imagenet_any` the best of all. A table of speeds
    gives `latency/DEVICE`: 1,000 / (images in a second), milliseconds an image.

    Args:
        path: the table.
        omissions: counts the entries that are not valid.
        device: name of the device of a table of speeds.
        models: patterns of the names of architectures; empty for all.

    Raises:
        ValueError: the file is not such a table, `device` is given for accuracies or missing for speeds, or
            no architecture matches `models`.
    """
    lines = csv.DictReader(io.StringIO(read_text(path, "a CSV file"), newline=""), strict=True)
    size_column = _check_columns(lines.fieldnames or (), device)
    results: Results = {}
    known = set()
    try:
        for line in lines:
            with omissions.skip(f"line {lines.line_num}"):
                model, _, tag = (line[MODEL_COLUMN] or "").partition(".")
                known.add(model)
                if models and not any(fnmatchcase(model, pattern) for pattern in models):
                    continue
                key = model, _size(line[size_column])
                for objective, value in _targets(line, tag, device, omissions).items():
                    targets = results.setdefault(key, {})
                    targets[objective] = max(value, targets.get(objective, value))
    except csv.Error as error:
        raise ValueError(f"line {lines.line_num}: {error}") from None
    for pattern in models:
        if known and not any(fnmatchcase(model, pattern) for model in known):
            raise ValueError(f"no architecture is {pattern!r}; {suggest(pattern, known)}")
    return results


def is_imagenet_alone(tag: str) -> bool:
    """Return whether a checkpoint's tag says that it was trained on ImageNet-1k alone and without a teacher.

    Examples:
        >>> [is_imagenet_alone(tag) for tag in ("ra_in1k", "augreg_in21k_ft_in1k", "fb_dist_in1k")]
        [True, False, False]
    """
    words = set(tag.split("_"))
    return "in1k" in words and not words & OTHER_TRAINING


def _check_columns(columns: Sequence[str], device: str) -> str:
    """Return the column of the image size.

    Raises:
        ValueError: a column is missing, or the device does not fit the table.
    """
    size = next((name for name in SIZE_COLUMNS if name in columns), "")
    is_speed = SPEED_COLUMN in columns
    if MODEL_COLUMN not in columns or not size or not (is_speed or ACCURACY_COLUMN in columns):
        raise ValueError(
            f"the columns are {', '.join(columns)}: expected {MODEL_COLUMN}, {' or '.join(SIZE_COLUMNS)},"
            f" and {ACCURACY_COLUMN} or {SPEED_COLUMN}"
        )
    if is_speed and not device:
        raise ValueError("it has speeds of a device: expected its name, --device NAME")
    if device and not is_speed:
        raise ValueError("it has accuracies, which do not depend on a device: expected no name of one")
    return size


def _targets(line: Mapping[str, str], tag: str, device: str, omissions: Omissions) -> dict[str, float]:
    """Return the valid values of a line."""
    name = line[MODEL_COLUMN]
    if device:
        objective = f"latency/{device}"
        speed = _number(line[SPEED_COLUMN])
        value = 1000 / speed if isinstance(speed, float) and speed > 0 else speed
        return omissions.targets({objective: value}, name)
    top1 = _number(line[ACCURACY_COLUMN])
    objectives = list(ACCURACIES.values()) if is_imagenet_alone(tag) else [ACCURACIES["top1_any"]]
    return omissions.targets(dict.fromkeys(objectives, top1), name)


def _number(cell: str | None) -> float | str | None:
    """Return a cell as a number, and a cell that is none as it is."""
    try:
        return float((cell or "").replace(",", ""))
    except ValueError:
        return cell


def _size(cell: str | None) -> int:
    """Return an image size."""
    if cell is None or not cell.isdecimal() or int(cell) < 1:
        raise ValueError(f"the image size is {cell!r}: expected a number of pixels")
    return int(cell)


def _text(model: str, size: int) -> str:
    """Return the text of an architecture of timm, for one image.

    Raises:
        ValueError: timm has no such model, or it cannot be exported, or its costs are not known.
    """
    import timm
    import torch

    from nas_rlm.text.torch_modules import from_torch

    config = timm.get_pretrained_cfg(model)
    if config is None:
        raise ValueError(f"timm {timm.__version__} has no such model")
    is_other_size = config.fixed_input_size and config.input_size[-1] != size
    options = {"img_size": size} if is_other_size else {}
    module = timm.create_model(model, pretrained=False, num_classes=NUM_CLASSES, **options)
    text = from_torch(module, torch.zeros(1, config.input_size[0], size, size))
    compute_costs(parse_network(text)).totals()  # an error if they are not known
    return text
