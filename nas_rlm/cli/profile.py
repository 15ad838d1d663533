"""profile: measure networks on a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.cli.app import Flag, Many, Whole, app, load, workers
from nas_rlm.cli.predict import read_architectures
from nas_rlm.files import check_target

UNSTEADY = 0.1  # windows that differ by more tell little of networks that are alike


@app.command
def profile(
    *files: Path,
    device: str,
    out: Path,
    space: str | None = None,
    archs: Path | None = None,
    arch: Many = (),
    sample: Whole = 0,
    choose: Whole = 0,
    model: str = "nas",
    seed: Whole = 0,
    windows: Whole = 5,
    seconds: float = 0.2,
    memory: Flag = False,
    python: str = "",
    limit: float = 900.0,
    ray: str = "",
) -> None:
    """Measure how long networks take on a device, as a table that finetune reads.

    The same command again goes on where the table ends, and another device gets columns of its own. A network
    that a runtime cannot run is a row with its error. On another machine, over ssh:
    --python 'ssh box nas-rlm/.venv/bin/python'.

    Args:
        files: ONNX files with weights, instead of architectures of a space.
        device: runtime, place, threads and batch, such as onnxruntime-cpu-1t, openvino-cpu-2t, ncnn-cpu-1t,
            torch-compile-cpu-1t or torch-cuda-b32.
        out: the parquet table.
        space: the search space; of files what networks like them are called in the table.
        archs: a file with an architecture a line.
        arch: architectures, in the space's notation.
        sample: draw this many at random as well.
        choose: measure only so many of these, which together tell most of the others.
        model: whose latencies tell which: a checkpoint folder, or the name of a shipped model.
        seed: of the draw, the choice and the order.
        windows: times that each network is measured, with others in between.
        seconds: of each of them.
        memory: measure memory as well, in a process for each network.
        python: a command that starts the Python where networks run; by default this one.
        limit: seconds that compiling a network, or a window of its runs, may take.
        ray: a cluster whose machines, all alike, share the networks: auto, HOST:6379 or ray://HOST:10001.
    """
    from nas_rlm.data.synthetic import graph_features_of_texts
    from nas_rlm.devices import Device
    from nas_rlm.devices.connection import check_timeout
    from nas_rlm.devices.measurements import Network, OnnxFileNetwork, SpaceNetwork, measurement_details
    from nas_rlm.devices.measurements import profile as run
    from nas_rlm.devices.profiler import Plan
    from nas_rlm.devices.sample_selection import select_samples, selection_features
    from nas_rlm.surrogates.features import MAX_CHAIN_LENGTH
    from nas_rlm.surrogates.registry import graph_surrogates
    from nas_rlm.text import from_architectures

    for name, value, least in (
        ("--sample", sample, 0),
        ("--seed", seed, 0),
        ("--choose", choose, 0),
        ("--windows", windows, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}, expected at least {least}")
    if not 0 < seconds <= 60:
        raise ValueError(f"--seconds is {seconds:g}, expected more than 0 and at most 60")
    check_timeout(limit, seconds, "--limit")
    check_target(out)
    where = Device.parse(device)
    networks: list[Network]
    if files:
        if archs or arch or sample or choose:
            raise ValueError(
                "ONNX files are measured as they are: --archs, --arch, --sample and --choose are for spaces"
            )
        networks = [OnnxFileNetwork(path, space or "") for path in files]
    else:
        if space is None:
            raise ValueError(
                "nothing to measure: give ONNX files, or --space with --sample, --archs or --arch"
            )
        known, rng = search_spaces.get(space), np.random.default_rng(seed)
        some = [known.parse(a) for a in arch]
        some += [a for _, a in read_architectures(known, archs)] if archs else []
        some += [known.sample(rng) for _ in range(sample)]
        if not some:
            raise ValueError("nothing to measure: give --sample N, --archs FILE or --arch ARCHITECTURE …")
        if choose:
            counts = [*graph_features_of_texts(from_architectures(known, some), MAX_CHAIN_LENGTH)]
            told = selection_features(graph_surrogates(load(model).surrogates).get(space, ()), space, counts)
            some = [some[i] for i in select_samples(told, choose, seed)]
        networks = [SpaceNetwork(known, a) for a in some]
    plan = Plan(windows, seconds, seed, memory, python, limit)
    with workers(ray) as there:
        table = run(networks, where, out, plan, progress=True, measure_function=there.measure)
    found = [measurement_details(row).get(str(where), {}) for row in table.rows]
    failed = [entry["error"] for entry in found if "error" in entry]
    spreads = [entry["spread"] for entry in found if "spread" in entry]
    print(f"{len(spreads):,} networks with latency/{where}: {out}")
    if spreads:
        print(f"windows of a network differ by {np.median(spreads):.1%} (median), {max(spreads):.1%} at most")
    if spreads and np.median(spreads) > UNSTEADY:
        print("this machine is busy, or its clock changes: measure again where nothing else runs")
    if failed:
        print(f"{len(failed):,} cannot run there, the first one: {failed[0]}")
