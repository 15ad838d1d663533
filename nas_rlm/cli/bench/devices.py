"""bench devices: new devices from a few measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import search_spaces
from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Integer, check_minimum, load
from nas_rlm.cli.bench.app import bench, read_space_table
from nas_rlm.utils.validation import suggest
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.benchmarks.devices import DeviceTransfer

TEST_SHARE = 0.1  # of the networks, for the splits one-out and help
MIN_SAMPLES = 10
SPLITS = ("one-out", "help", "new", "out")


@bench.command(name="devices")
def bench_devices(
    *,
    space: str,
    samples: Integer = 20,
    seeds: Integer = 5,
    split: str = "one-out",
    model: str = "nas",
    data: Path | None = None,
    again: Path | None = None,
    out: Path | None = None,
) -> None:
    """Predict a new device from a few networks measured on it.

    The splits are: one-out, where each device in turn is new and all others are known to the model; out,
    where the others are known from 300 networks of the table itself, also of a space that the model does
    not know (networks without a space have no known devices); help, the nine known and six new devices of
    HELP and NASFLAT; new, the devices that the model does not know; or the name of
    another space, whose devices alone are known. The test networks are a tenth of the networks, not measured
    on any device; with new, all networks but the samples.

    Args:
        space: the search space, such as nasbench201, or FILE.py:CLASS or MODULE:CLASS of your own; with
            --data also another name in the table, such as nnmeter, or empty for networks without a space.
        samples: number of networks measured on the new device; they are drawn or chosen from 1,000.
        seeds: number of selections of each kind, with seeds from 0.
        split: one-out, out, help, new, or the name of another space.
        model: model with surrogates of the known devices: a checkpoint directory, or the name of a shipped
            model.
        data: the table; by default architectures/SPACE.parquet of the data directory.
        again: a table with second measurements of some networks; the agreement of both is printed.
        out: file of JSON lines to which results are added; results that it has are not computed again.
    """
    from nas_rlm.benchmarks.devices import (
        KEY_NAMES,
        DeviceResult,
        DeviceTransfer,
        format_results,
        repeatability,
    )
    from nas_rlm.data.objective_kinds import LATENCY_PREFIX
    from nas_rlm.surrogates.registry import graph_surrogates

    is_across = split not in SPLITS
    _check_numbers(split, is_across, seeds, samples)
    space_name = search_spaces.name_of(space)
    table = read_space_table(space_name, data)
    second_table = read_space_table(space_name, again) if again else None
    transfer = DeviceTransfer(table, test_share=0 if split == "new" else TEST_SHARE)
    source_space = search_spaces.get(split).name if is_across else space_name
    targets: Sequence[str] = transfer.devices
    if split == "out":
        source_surrogates = transfer.fit_known_devices()
    else:
        all_surrogates = graph_surrogates(load(model).surrogates).get(source_space, ())
        known = [n for s in all_surrogates for n in s.objectives if n.startswith(LATENCY_PREFIX)]
        sources, targets = _sources_and_targets(transfer, split, known)
        if is_across and (source_space == space_name or not targets):
            raise ValueError(f"{model} has no device of {table.name} from {source_space} as another space")
        for name in sources if split == "help" else ():
            if name not in known:
                raise ValueError(
                    f"{model} has no surrogate of {name} on {space_name}; {suggest(name, known)}"
                )
        if len(known) < 2:
            raise ValueError(
                f"{model} has surrogates of fewer than two latencies of {source_space}: --split out learns"
                " the known devices from the table"
            )
        others = [name for s in all_surrogates for name in s.objectives if name not in sources]
        source_surrogates = [reduced for s in all_surrogates if (reduced := s.without(others))]
    seeds = seeds if samples else 1  # without samples all seeds are the same
    settings = {"space": space_name, "samples": samples, "split": split, "model": model, "table": table.name}
    results = Results(out, DeviceResult, settings, KEY_NAMES)
    new_results = transfer.run(
        {source_space: source_surrogates}, targets, samples, range(seeds), results.records, progress=True
    )
    results.add_all(new_results)
    count, of_table = len(transfer.test_indices), space_name or table.name
    print(f"{counted(samples, 'sample')} of a new device, {counted(count, 'network')} of {of_table}")
    print(format_results(results.records, targets, range(seeds)))
    if second_table is not None:
        for name in targets:
            count, rho, difference = repeatability(table, second_table, name)
            if count > 1:
                print(
                    f"{name} measured twice: {counted(count, 'network')}, Spearman {rho:.3f},"
                    f" difference {difference:.1%}"
                )


def _check_numbers(split: str, is_across: bool, seeds: int, samples: int) -> None:
    """Refuse an unknown split and numbers that are too small.

    Raises:
        ValueError: one of them is invalid.
    """
    if is_across and search_spaces.name_of(split) not in search_spaces.names():
        raise ValueError(
            f"--split is {split!r}: expected one-out, out, help, new, or the name of another space"
        )
    check_minimum("--seeds", seeds, 1)
    if samples < MIN_SAMPLES and not (is_across and samples == 0):
        alternative = ", or 0" if is_across else ""
        raise ValueError(f"--samples is {samples}, expected at least {MIN_SAMPLES}{alternative}")


def _sources_and_targets(
    transfer: DeviceTransfer, split: str, known: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The latencies of the known and of the new devices of a split."""
    if split == "help":
        return transfer.help_devices()
    if split == "one-out":
        return known, transfer.devices
    if split == "new":
        return known, [name for name in transfer.devices if name not in known]
    return known, [name for name in transfer.devices if name in known]
