"""bench networks: latencies of real networks of several families."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.extras import require


@bench.command(name="networks")
def bench_networks(
    file: Path,
    *,
    objectives: CommaList,
    protocols: CommaList = ("known families", "other families", "20", "50", "100"),
    only: CommaList = (),
    rows: Integer = 100_000,
    per_family: Integer = 400,
    seeds: Integer = 5,
    known: CommaList = (),
    again: Path | None = None,
    out: Path | None = None,
) -> None:
    """Predict latencies of real networks: of known families, of families left out, and from few labels.

    Methods are the surrogate that `finetune --learn none` fits, non-negative least squares on sums over
    layers, a line in multiply-accumulates, and boosted trees on the sums.

    Args:
        file: parquet table of networks with families, such as nnmeter.parquet.
        objectives: latencies of the table.
        protocols: 'known families': 15 % of the networks are the test; 'other families': each family is left
            out, or each of 12 groups of families if there are more; or a number of labelled networks that are
            drawn at random.
        only: use only networks of these spaces of the table.
        rows: maximum number of networks of the table, drawn at random.
        per_family: maximum number of networks of a family for 'other families'.
        seeds: number of draws of few labels.
        known: latencies of devices that are known for the networks of half of the families. Numbers of labels
            are then also learnt with the help of these devices.
        again: a table of second measurements of some of the networks, to compare with the first ones.
        out: file of JSON lines to which results are added; cases that it has are not computed again.
    """
    from nas_rlm.benchmarks.networks import (
        AGAIN,
        FAMILIES,
        KEY_NAMES,
        KINDS,
        KNOWN,
        LatencyResult,
        NetworkLatencies,
        format_results,
        results_of_second_measurements,
    )
    from nas_rlm.data import read
    from nas_rlm.data.omissions import Omissions

    check_minimum("--seeds", seeds, 1)
    check_minimum("--per-family", per_family, 20)
    check_minimum("--rows", rows, 20)
    for protocol in protocols:
        is_number = protocol.isdecimal() and int(protocol) >= 10
        if not is_number and protocol not in (KNOWN, FAMILIES, KINDS):
            raise ValueError(
                f"--protocols has {protocol!r}: expected {KNOWN!r}, {FAMILIES!r}, {KINDS!r} or a number of at"
                " least 10"
            )
    require("baselines", "the method trees")
    settings = {"table": file.stem, "rows": rows, "per_family": per_family} | (
        {"known": [*known]} if known else {}
    )
    results = Results(out, LatencyResult, settings, KEY_NAMES)
    omissions = Omissions()
    table = read(file, omissions)
    table = table.of_spaces(only) if only else table
    networks = NetworkLatencies(table.sample(rows).rows, objectives, per_family, known)
    omissions.warn()
    results.add_all(networks.run(protocols, seeds, [*results.records]))
    if again:
        results.add_all(results_of_second_measurements(table, read(again), objectives))
    shown = {
        key: result
        for key, result in results.records.items()
        if key[0] in objectives and key[1] in (*protocols, AGAIN) and key[4] < seeds
    }
    print(format_results(shown))
