"""Training results in the format of Dong et al., which NAS-Bench-201 and NATS-Bench share."""

from __future__ import annotations

from typing import Any

from nas_rlm.data.tables import Row
from nas_rlm.utils.progress import progress_bar
from search_spaces import get

DATASETS = {  # objective: name of the dataset in the files
    "accuracy": "cifar10",
    "accuracy/cifar100": "cifar100",
    "accuracy/imagenet16_120": "ImageNet16-120",
}


def rows_from_arch_results(
    content: dict[str, Any], space_name: str, final_key: str, early_key: str
) -> list[Row]:
    """Convert the results of each architecture to a row, as mean test accuracies over the seeds.

    Args:
        content: the loaded file, with results by architecture, training length, dataset and seed.
        space_name: search space of the architectures.
        final_key: key of the full training.
        early_key: key of the training for 12 epochs.

    Raises:
        ValueError: the package nas-bench-201 is not installed.
    """
    try:
        from nas_201_api.api_utils import ArchResults
    except ImportError:
        raise ValueError(
            "reading it needs the package nas-bench-201: pip install 'nas-rlm[official]'"
        ) from None
    space, rows = get(space_name), []
    for index, info in progress_bar(sorted(content["arch2infos"].items()), space_name, unit="net"):
        notation = content["meta_archs"][index]
        final = ArchResults.create_from_state_dict(info[final_key])
        targets = {}
        for objective, dataset in DATASETS.items():
            if dataset in final.get_dataset_names():
                split = "ori-test" if dataset == "cifar10" else "x-test"
                targets[objective] = float(final.get_metrics(dataset, split)["accuracy"])
        early = ArchResults.create_from_state_dict(info[early_key])
        if "cifar10" in early.get_dataset_names():
            targets["accuracy/cifar10_12ep"] = float(early.get_metrics("cifar10", "ori-test")["accuracy"])
        architecture = space.parse(str(notation))
        targets |= {"params": float(space.params(architecture)), "flops": float(space.flops(architecture))}
        rows.append(Row(space_name, str(architecture), targets, identifier=f"{space_name}_{index}"))
    return rows
