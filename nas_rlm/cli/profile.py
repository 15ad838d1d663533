"""profile: measured latency and memory of networks on a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import search_spaces
from nas_rlm.cli.app import (
    Flag,
    InputShapes,
    Integer,
    SpaceList,
    app,
    check_files,
    check_minimum,
    check_model,
    connect_workers,
    load,
)
from nas_rlm.cli.prediction import read_architectures
from nas_rlm.files import check_target
from nas_rlm.utils.extras import require
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.data import Table
    from nas_rlm.devices import Device
    from search_spaces import SearchSpace

MAX_SPREAD = 0.1  # between the windows of a network; above it, similar networks cannot be distinguished
MAX_SECONDS = 60  # of a window


@app.command
def profile(
    *files: Path,
    device: str,
    out: Path,
    input_shape: InputShapes = (),
    space: str | None = None,
    archs: Path | None = None,
    arch: SpaceList = (),
    sample: Integer = 0,
    choose: Integer = 0,
    model: str = "nas",
    seed: Integer = 0,
    windows: Integer = 5,
    seconds: float = 0.2,
    memory: Flag = False,
    python: str = "",
    limit: float = 900.0,
    ray: str = "",
) -> None:
    """Measure latency and memory of networks on a device.

    The output is a table for finetune. The same command continues an interrupted run, and another device adds
    columns. A network that the runtime cannot run has a row with its error. A file that was replaced is
    measured again. Another machine is measured over ssh: --python 'ssh box nas-rlm/.venv/bin/python'.

    Args:
        files: ONNX files with weights, instead of architectures of a space.
        device: runtime, processor, threads and batch size, such as onnxruntime-cpu-1t, openvino-cpu-2t,
            ncnn-cpu-1t, torch-compile-cpu-1t or torch-cuda-b32.
        out: the parquet table, with latencies in milliseconds and memory in bytes.
        input_shape: shape of an input with open dimensions, such as images:1x3x224x224; can be repeated. An
            open batch dimension, the first one, is the device's batch.
        space: the search space: its name, or FILE.py:CLASS or MODULE:CLASS of your own. With files: the
            space that they have in the table.
        archs: a file with one architecture per line.
        arch: architectures in the notation of the space.
        sample: number of random architectures to add.
        choose: measure only this many of them, the most informative ones for the others.
        model: the model whose surrogates of latencies are used for --choose: a checkpoint directory, or the
            name of a shipped model.
        seed: seed of the random architectures, of --choose and of the order.
        windows: number of time windows in which each network is measured; other networks run in between.
        seconds: length of a window.
        memory: measure memory as well, in a separate process for each network.
        python: command that starts Python where the networks run; by default this Python.
        limit: seconds that compiling a network, or a window of its runs, may take.
        ray: address of a Ray cluster of identical machines that share the networks: auto, HOST:6379 or
            ray://HOST:10001.
    """
    from nas_rlm.devices import Device, runtimes
    from nas_rlm.devices.connection import check_timeout

    numbers = {
        "--sample": (sample, 0),
        "--seed": (seed, 0),
        "--choose": (choose, 0),
        "--windows": (windows, 1),
    }
    for name, (value, minimum) in numbers.items():
        check_minimum(name, value, minimum)
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"--seconds is {seconds:g}, expected more than 0 and at most {MAX_SECONDS}")
    check_timeout(limit, seconds, "--limit")
    check_target(out)
    if choose:
        check_model(model)
    parsed_device = Device.parse(device)
    if ray:
        require("ray", "--ray")
    elif not python:
        runtimes.check(parsed_device)

    from nas_rlm.devices.measurements import Network, OnnxFileNetwork, SpaceNetwork
    from nas_rlm.devices.measurements import profile as measure
    from nas_rlm.devices.profiler import Plan
    from nas_rlm.text.canonical import shapes_of_models

    networks: list[Network]
    if files:
        if archs or arch or sample or choose:
            raise ValueError(
                "ONNX files are measured as they are: --archs, --arch, --sample and --choose are for spaces"
            )
        check_files(files)
        shapes = shapes_of_models(files, dict(input_shape))
        space_name = search_spaces.name_of(space) if space else ""
        networks = [
            OnnxFileNetwork(path, space_name, own_shapes)
            for path, own_shapes in zip(files, shapes, strict=True)
        ]
    elif input_shape:
        raise ValueError("--input-shape is for ONNX files: the networks of a space have fixed shapes")
    elif space is None:
        raise ValueError("nothing to measure: give ONNX files, or --space with --sample, --archs or --arch")
    else:
        search_space = search_spaces.get(space)
        architectures = _architectures(search_space, archs, arch, sample, seed)
        if choose:
            architectures = _select_informative(search_space, architectures, choose, model, seed)
        networks = [SpaceNetwork(search_space, architecture) for architecture in architectures]
    plan = Plan(windows, seconds, seed, memory, python, limit)
    with connect_workers(ray) as workers:
        table = measure(networks, parsed_device, out, plan, progress=True, measure_function=workers.measure)
    _print_summary(table, parsed_device, out)


def _architectures(
    space: SearchSpace[Any], archs: Path | None, arch: Sequence[str], sample: int, seed: int
) -> list[Any]:
    """The architectures of the options, and random ones.

    Raises:
        ValueError: there are none.
    """
    rng = np.random.default_rng(seed)
    architectures = [space.parse(text) for text in arch]
    architectures += [a for _, a in read_architectures(space, archs)] if archs else []
    architectures += [space.sample(rng) for _ in range(sample)]
    if not architectures:
        raise ValueError("nothing to measure: give --sample N, --archs FILE or --arch ARCHITECTURE …")
    return architectures


def _select_informative(
    space: SearchSpace[Any], architectures: Sequence[Any], count: int, model: str, seed: int
) -> list[Any]:
    """The architectures whose measurements are the most informative for the others."""
    from nas_rlm.data.synthetic import graph_features_of_texts
    from nas_rlm.devices.sample_selection import select_samples, selection_features
    from nas_rlm.surrogates.graphs.features import MAX_CHAIN_LENGTH
    from nas_rlm.surrogates.registry import graph_surrogates
    from nas_rlm.text import from_architectures

    texts = from_architectures(space, architectures)
    graph_features = graph_features_of_texts(texts, MAX_CHAIN_LENGTH, with_layers=True)
    surrogates = graph_surrogates(load(model).surrogates).get(space.name, ())
    features = selection_features(surrogates, graph_features)
    return [architectures[i] for i in select_samples(features, count, seed)]


def _print_summary(table: Table, device: Device, out: Path) -> None:
    """Print how many networks were measured, how much windows differ, and an error."""
    from nas_rlm.devices.measurements import measurement_details

    details = [measurement_details(row).get(str(device), {}) for row in table.rows]
    errors = [entry["error"] for entry in details if "error" in entry]
    spreads = [entry["spread"] for entry in details if "spread" in entry]
    print(f"{counted(len(spreads), 'network')} with latency/{device}: {out}")
    if spreads:
        median = np.median(spreads)
        print(f"windows of a network differ by {median:.1%} (median), {max(spreads):.1%} at most")
        if median > MAX_SPREAD:
            print("this machine is busy, or its clock speed changes: measure again when it is idle")
    if errors:
        print(f"{len(errors):,} cannot run there, the first one: {errors[0]}")
