import pickle

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm.cli import main
from nas_rlm.data import read, write
from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import (
    GPT_ARCHS,
    hw_gpt_energy,
    hw_gpt_latency,
    write_hw_gpt_bench,
)

FIRST, SECOND = GPT_ARCHS
A100, V100 = (
    f"raw_results_hw/latency_{device}/efficiency_observations_0_2500.pkl" for device in ("a100", "v100")
)
ENERGY = "raw_results_hw/latency_a100/efficiency_energy_observations_tracker_0_2500.pkl"
PERPLEXITY = "arch_ppl_bench_s/ppl_observations_tracker_0_1000.pkl"
pytestmark = pytest.mark.filterwarnings("ignore:.*read as a pickle")


def imported(directory, files=None):
    return import_benchmark("hw_gpt_bench", write_hw_gpt_bench(directory, files), allow_pickle=True)


def test_measurements_of_a_network_are_one_row(tmp_path):
    second, first = imported(tmp_path)  # in the order of the files
    assert (first.space, second.space) == ("gpt_s", "gpt_s")
    assert first.arch_str == (
        '{"embed_dim": 192, "n_layer": 10, "n_head": [4, 8, 12, 4, 8, 12, 4, 8, 12, 4],'
        ' "mlp_ratio": [2, 3, 4, 2, 3, 4, 2, 3, 4, 2], "bias": true}'
    )
    costs = {"flops": 1_000_000.0, "params": 5_000.0}
    assert first.targets == {
        **costs,
        "latency/a100_gpu": 12.0,
        "energy/a100_gpu": pytest.approx(0.002 * 3600),
        "latency/cpu_p100_cpu": 1000.0,
        "energy/cpu_p100_cpu": 1800.0,
    }
    assert second.targets == {
        **costs,
        "accuracy": 37.5,
        "perplexity": 33.125,
        "latency/a100_gpu": 375.0,
        "memory/a100": 341_250_000.0,
    }


@pytest.mark.parametrize("scale", ["m", "l"])
def test_the_scale_is_that_of_the_directory(tmp_path, scale):
    space = search_spaces.get(f"gpt_{scale}")
    a = space.sample(np.random.default_rng(0))
    values = a.embed_dim, len(a.heads), list(a.heads), list(a.mlp_ratios), a.bias
    keys = "embed_dim", "n_layer", "n_head", "mlp_ratio", "bias"
    arch = {f"sample_{key}": value for key, value in zip(keys, values, strict=True)}
    files = {
        f"latency_helix_cpu_{scale}/efficiency_observations_0_2500.pkl": [hw_gpt_latency(arch, "cpu")],
        f"arch_ppl_bench_{scale}/ppl_observations_tracker_0_1000.pkl": [
            {"accuracy": 0.25, "perplexity": 40.0, "arch": arch},
            {"accuracy": 0.25, "perplexity": 40.0, "arch": FIRST},
        ],
    }
    with pytest.warns(UserWarning, match=r"^1 entry is not valid .*: arch_ppl_bench_.*, entry 1: "):
        (row,) = imported(tmp_path, files)
    assert (row.space, row.arch_str) == (space.name, str(a))
    assert row.targets.keys() == {
        *("accuracy", "perplexity", "latency/helix_cpu_cpu", "energy/helix_cpu_cpu", "flops", "params"),
    }


def test_a_table_of_the_rows_is_read_again(tmp_path):
    rows = imported(tmp_path)
    write(tmp_path / "table.parquet", rows)
    table = read(tmp_path / "table.parquet")
    assert [row.targets for row in table.rows] == [row.targets for row in rows]
    assert {row.space for row in table.rows} == {"gpt_s"}


@pytest.mark.parametrize(
    ("file", "entry", "objective", "others"),
    [
        (A100, hw_gpt_latency(FIRST, "gpu", (1.0, -1.0), ("ms", "ms")), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", (1.0, 0), ("ms", "ms")), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", (1.0, float("nan")), ("ms", "ms")), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", (), ()), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", (1.0, 2.0), ("ms",)), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", (1.0, 2.0), ("ms", "min")), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", times_profiler_gpu=None), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", times_profiler_gpu="12"), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", unit_gpu=None), "latency/a100_gpu", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", macs=0), "flops", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", macs=None), "flops", 2),
        (A100, hw_gpt_latency(FIRST, "gpu", params="many"), "params", 2),
        (A100, {"arch": FIRST, "mean_mem": -1.0}, "memory/a100", 0),
        (A100, {"arch": FIRST, "mean_mem": float("inf")}, "memory/a100", 0),
        (ENERGY, hw_gpt_energy(FIRST, (0.1, None, 0.2)), "energy/a100_gpu", 0),
        (ENERGY, hw_gpt_energy(FIRST, (0.1, 0.0)), "energy/a100_gpu", 0),
        (PERPLEXITY, {"accuracy": 37.5, "perplexity": 33.0, "arch": FIRST}, "accuracy", 1),
        (PERPLEXITY, {"accuracy": None, "perplexity": 33.0, "arch": FIRST}, "accuracy", 1),
        (PERPLEXITY, {"accuracy": 0.375, "perplexity": float("nan"), "arch": FIRST}, "perplexity", 1),
        (PERPLEXITY, {"accuracy": 0.375, "arch": FIRST}, "perplexity", 1),
    ],
)
def test_numbers_that_are_not_valid_are_missing(tmp_path, file, entry, objective, others):
    with pytest.warns(
        UserWarning, match=rf"^1 entry of {objective} is not valid and was left out: .*entry 0"
    ):
        first, second = imported(tmp_path, {file: [entry], V100: [hw_gpt_latency(SECOND, "gpu")]})
    assert objective not in first.targets
    assert len(first.targets) == others
    assert second.targets == {"latency/v100_gpu": 12.0, "flops": 1e6, "params": 5000.0}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {"arch": None},
        {"arch": {**FIRST, "sample_embed_dim": 256}},
        {"arch": {**FIRST, "sample_n_layer": 13}},
        {"arch": {**FIRST, "sample_n_head": [4] * 3}},
        {"arch": {**FIRST, "sample_mlp_ratio": None}},
        {"arch": {**FIRST, "sample_bias": "no"}},
        {"arch": {**FIRST, "sample_embed_dim": object}},
        {"arch": {k: v for k, v in FIRST.items() if k != "sample_bias"}},
    ],
)
def test_networks_that_are_not_valid_have_no_row(tmp_path, entry):
    with pytest.warns(UserWarning, match=r"^1 entry is not valid and was left out: .*a100/.*, entry 1: "):
        rows = imported(tmp_path, {A100: [hw_gpt_latency(FIRST, "gpu"), entry]})
    assert [row.identifier for row in rows] == ["gpt_s_0"]


@pytest.mark.parametrize("content", [b"", b"\x80", b"text", pickle.dumps({"arch": FIRST}), pickle.dumps(3)])
def test_damaged_files_are_left_out(tmp_path, content):
    directory = write_hw_gpt_bench(tmp_path, {A100: [], V100: [hw_gpt_latency(FIRST, "gpu")]})
    (directory / A100).write_bytes(content)
    with pytest.warns(
        UserWarning, match=r"^1 entry is not valid and was left out: raw_results_hw/latency_a100"
    ):
        (row,) = import_benchmark("hw_gpt_bench", directory, allow_pickle=True)
    assert row.targets["latency/v100_gpu"] == 12.0


def test_a_truncated_file_alone_is_refused(tmp_path):
    directory = write_hw_gpt_bench(tmp_path, {A100: [hw_gpt_latency(FIRST, "gpu")]})
    content = (directory / A100).read_bytes()
    (directory / A100).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"has no measurements \(raw_results_hw/latency_a100/"):
        import_benchmark("hw_gpt_bench", directory, allow_pickle=True)


def test_directories_of_other_names_are_left_out(tmp_path):
    files = {A100: [hw_gpt_latency(FIRST, "gpu")], "a100/efficiency_observations_0_2500.pkl": []}
    with pytest.warns(UserWarning, match=r"^1 entry .*: its directory is 'a100', expected latency_DEVICE"):
        assert len(imported(tmp_path, files)) == 1


def test_a_directory_without_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not a directory of HW-GPT-Bench.* has no efficiency_observa"):
        import_benchmark("hw_gpt_bench", tmp_path, allow_pickle=True)


def test_one_device_and_tensors(tmp_path):
    times = [torch.tensor(3.0), np.float32(2.0), 1]
    directory = write_hw_gpt_bench(tmp_path, {A100: [hw_gpt_latency(FIRST, "gpu", times, ["us"] * 3)]})
    (row,) = import_benchmark("hw_gpt_bench", (directory / A100).parent, allow_pickle=True)
    assert row.targets["latency/a100_gpu"] == pytest.approx(0.002)


def test_the_command(tmp_path, capsys):
    path, out = write_hw_gpt_bench(tmp_path), tmp_path / "table.parquet"
    assert main(["data", "import", "hw_gpt_bench", str(path), "--out", str(out)]) == 2
    assert "Python pickles, which can run any code" in capsys.readouterr().err
    assert main(["data", "import", "hw_gpt_bench", str(path), "--allow-pickle", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"2 rows: {out}\n"
