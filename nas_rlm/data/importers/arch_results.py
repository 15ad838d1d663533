"""Training results in the format of Dong et al., which NAS-Bench-201 and NATS-Bench share.

They are published as a torch file (NAS-Bench-201), as one compressed pickle, or as a directory with a
compressed pickle for each architecture (NATS-Bench, "simple").
"""

from __future__ import annotations

import bz2
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from nas_rlm.data.omissions import Omissions
from nas_rlm.data.tables import Row
from nas_rlm.utils.extras import require
from nas_rlm.utils.progress import progress_bar
from search_spaces import get
from search_spaces.notation import is_int_between
from search_spaces.wording import counted

DATASETS = {  # objective: name of the dataset in the files
    "accuracy": "cifar10",
    "accuracy/cifar100": "cifar100",
    "accuracy/imagenet16_120": "ImageNet16-120",
}
EARLY_DATASETS = {"accuracy/cifar10_12ep": "cifar10"}
TEST_SPLITS = {"cifar10": "ori-test", "cifar100": "x-test", "ImageNet16-120": "x-test"}
SUFFIX = ".pickle.pbz2"
META_FILE = f"meta{SUFFIX}"  # notations of all architectures, in a directory of "simple" files
BZIP2_MAGIC = b"BZh"


def read_rows(
    path: Path, omissions: Omissions, space_name: str, final_keys: Sequence[str], early_keys: Sequence[str]
) -> list[Row]:
    """Read the results of each architecture as a row, with mean test accuracies over the seeds.

    Args:
        path: the file or directory; its files are pickles, which can run any code.
        omissions: counts the entries that are not valid.
        space_name: search space of the architectures.
        final_keys: names that the full training may have.
        early_keys: names that the training for 12 epochs may have.

    Raises:
        ValueError: the package nas-bench-201 is not installed, or the file has no results of a benchmark.
    """
    require("official", "reading it")
    from nas_201_api.api_utils import ResultsCount

    def accuracy(dataset: str, state: Mapping[str, Any]) -> object:
        return ResultsCount.create_from_state_dict(dict(state)).get_eval(TEST_SPLITS[dataset])["accuracy"]

    def accuracies(
        info: Mapping[str, Any], keys: Sequence[str], datasets: Mapping[str, str], name: str
    ) -> dict[str, float]:
        """Return the mean accuracy on each dataset after one of the trainings."""
        means = {}
        for objective, dataset in datasets.items():
            values: list[float] = []
            with omissions.skip(name, objective):
                if not (present := [key for key in keys if key in info]):
                    raise ValueError(f"no results with the key {' or '.join(keys)}")
                for (trained_on, _), state in info[present[0]]["all_results"].items():
                    if trained_on == dataset:
                        with omissions.skip(name, objective):
                            values += omissions.targets({objective: accuracy(dataset, state)}, name).values()
            if values:
                means[objective] = fmean(values)
        return means

    space, rows = get(space_name), {}
    notations, results = _read_results(path, omissions)
    for index, info in progress_bar(results, space_name, unit="net"):
        name = f"{space_name}_{index}"
        with omissions.skip(name):
            if not is_int_between(index, 0, len(notations) - 1):
                raise ValueError(f"the file has {counted(len(notations), 'architecture')}")
            architecture = space.parse(str(notations[index]))
            targets = accuracies(info, final_keys, DATASETS, name)
            targets |= accuracies(info, early_keys, EARLY_DATASETS, name)
            targets |= {
                "params": float(space.params(architecture)),
                "flops": float(space.flops(architecture)),
            }
            rows[index] = Row(space_name, str(architecture), targets, identifier=name)
    return [rows[index] for index in sorted(rows)]


def _read_results(path: Path, omissions: Omissions) -> tuple[Sequence[Any], Iterable[tuple[Any, Any]]]:
    """Return the notation of each architecture, and the index and results of each trained one."""
    if path.is_dir():
        if not (path / META_FILE).is_file():
            raise ValueError(f"the directory has no {META_FILE}")
        meta = _load(path / META_FILE)
        return meta["meta_archs"], _read_directory(path, meta.get("evaluated_indexes", ()), omissions)
    content = _load(path)
    if not isinstance(content, dict) or not {"meta_archs", "arch2infos"} <= content.keys():
        raise ValueError(
            "it does not have the results of all architectures. For one of the 'simple' files, give the"
            f" directory that has them and {META_FILE}"
        )
    return content["meta_archs"], content["arch2infos"].items()


def _read_directory(path: Path, evaluated: Iterable[int], omissions: Omissions) -> Iterator[tuple[int, Any]]:
    """Yield the index and results of each architecture that has a file, such as 000012.pickle.pbz2.

    Args:
        path: the directory.
        evaluated: indices of the architectures that should have a file.
        omissions: counts the files that are missing or damaged.
    """
    files = {int(name): file for file in path.iterdir() if (name := _index_in_name(file))}
    for index in sorted(files):
        with omissions.skip(files[index].name):
            yield index, _load(files[index])
    with omissions.skip(META_FILE):
        if missing := sorted(set(evaluated) - files.keys()):
            omissions.add(f"{missing[0]:06d}{SUFFIX}", "there is no such file", count=len(missing))


def _index_in_name(file: Path) -> str:
    """Return the index in the name of an architecture's file; empty for another file."""
    name = file.name.removesuffix(SUFFIX)
    return name if name != file.name and name.isascii() and name.isdigit() else ""


def _load(path: Path) -> Any:
    """Load a torch file or a pickle that bzip2 compressed."""
    with open(path, "rb") as file:
        is_compressed = file.read(len(BZIP2_MAGIC)) == BZIP2_MAGIC
    if not is_compressed:
        return torch.load(path, map_location="cpu", weights_only=False)
    with bz2.open(path) as compressed:
        content = pickle.load(compressed)
        compressed.read()  # up to the end, which raises an error if the file is truncated
    return content
