"""Writers of small files in exactly the formats that the benchmarks' authors publish."""

import base64
import bz2
import json
import pickle
import struct

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm.data.importers.nas_bench_101 import masked_crc32c

CELLS = search_spaces.get("nasbench201")
CELL_NOTATIONS = [str(CELLS.sample(np.random.default_rng(i))) for i in range(3)]
SIZE_NOTATIONS = ["8:16:24:32:40", "64:64:64:64:64"]
GENOTYPE = {
    "normal": [["sep_conv_3x3", 0], ["skip_connect", 1]] * 4,
    "normal_concat": [2, 3, 4, 5],
    "reduce": [["max_pool_3x3", 0], ["dil_conv_5x5", 1]] * 4,
    "reduce_concat": [2, 3, 4, 5],
}
ADJACENCY_101, OPERATORS_101 = "010001000", "input,conv3x3-bn-relu,output"


def arch_results(notations, final_key, early_key, epochs):
    """The dict that both benchmarks of Dong et al. store, built with the package's own classes."""
    api = pytest.importorskip("nas_201_api.api_utils", reason="nas-bench-201 is not installed")
    infos = {}
    for index, notation in enumerate(notations):
        infos[index] = {}
        for key, length, datasets in (
            (final_key, epochs, ("cifar10", "cifar100", "ImageNet16-120")),
            (early_key, 2, ("cifar10",)),
        ):
            results = api.ArchResults(index, notation)
            for dataset in datasets:
                for seed in (777, 888):
                    result = api.ResultsCount(dataset, None, {}, {}, 1.0, 2.0, {}, seed, length, None)
                    result.update_train_info({}, {}, {}, {})
                    split = "ori-test" if dataset == "cifar10" else "x-test"
                    metric_keys = [f"{split}@{i}" for i in range(length)]
                    accuracy = 50 + index + length + (seed == 888) + len(dataset)
                    metrics = (accuracy, 0.5, 1.0)
                    result.update_eval(*({k: float(v) for k in metric_keys} for v in metrics))
                    results.all_results[dataset, seed] = result
                    results.dataset_seed.setdefault(dataset, []).append(seed)
            infos[index][key] = results.state_dict()
    return {"meta_archs": list(notations), "arch2infos": infos, "evaluated_indexes": list(infos)}


def write_nas_bench_201(directory):
    torch.save(arch_results(CELL_NOTATIONS, "full", "less", 4), directory / "nb201.pth")
    return directory / "nb201.pth"


def write_nats_bench(directory):
    return write_compressed(directory / "sss.pickle.pbz2", arch_results(SIZE_NOTATIONS, "90", "12", 4))


def write_compressed(path, content):
    with bz2.open(path, "wb") as file:
        pickle.dump(content, file)
    return path


def write_simple(directory, content):
    """The directory of 'simple' files of NATS-Bench, with a file for each architecture."""
    directory.mkdir(exist_ok=True)
    infos = content["arch2infos"]
    meta = {
        "meta_archs": content["meta_archs"],
        "total_archs": len(infos),
        "evaluated_indexes": set(infos),
    }
    write_compressed(directory / "meta.pickle.pbz2", meta)
    for index, info in infos.items():
        write_compressed(directory / f"{index:06d}.pickle.pbz2", info)
    return directory


def varint(n):
    encoded = b""
    while n > 127:
        encoded, n = encoded + bytes([n & 127 | 128]), n >> 7
    return encoded + bytes([n])


def tf_record(content):
    length = struct.pack("<Q", len(content))
    checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, content))
    return length + next(checksums) + content + next(checksums)


def write_nas_bench_101(directory, runs=((108, 0.9), (108, 0.92), (12, 0.5))):
    records = b""
    for epochs, accuracy in runs:
        point = b"".join(
            bytes([number << 3 | 1]) + struct.pack("<d", value)
            for number, value in enumerate((epochs, 10.0, 0.99, accuracy, 0.8), 1)
        )
        halfway = bytes([1 << 3 | 1]) + struct.pack("<d", epochs / 2)
        message = b"".join(b"\x0a" + varint(len(p)) + p for p in (halfway, point))
        message += b"\x10" + varint(1_000_000) + b"\x19" + struct.pack("<d", 60.0)
        row = ["0" * 32, epochs, ADJACENCY_101, OPERATORS_101, base64.b64encode(message).decode()]
        records += tf_record(json.dumps(row).encode())
    (directory / "nasbench.tfrecord").write_bytes(records)
    return directory / "nasbench.tfrecord"


def write_hw_nas_bench(directory, **changes):
    columns = {f"{d}_{k}": [1.0, 2.0, 3.0] for d in ("pixel3", "eyeriss") for k in ("latency", "energy")}
    configs = [{"name": "infer.tiny", "C": 16, "N": 5, "arch_str": n} for n in CELL_NOTATIONS]
    content = {"nasbench201": {"cifar10": {"config": configs, **columns, **changes}}, "fbnet": {}}
    (directory / "hw.pickle").write_bytes(pickle.dumps(content))
    return directory / "hw.pickle"


def write_help(directory, space):
    (directory / "latency").mkdir()
    if space == "nasbench201":
        index = {name: i for i, name in reversed(list(enumerate(CELL_NOTATIONS)))}
        torch.save(index, directory / "str_arch2idx.pt")
    elif space == "fbnet":
        torch.save({"arch": [{"op_idx_list": [i] * 22} for i in range(3)]}, directory / "metainfo.pt")
    else:
        arch = {"ks": [3] * 20, "e": [6] * 20, "d": [4] * 5, "r": [160]}
        torch.save({"arch": [arch] * 3}, directory / "ofa_archs.pt")
    torch.save([5.0, 6.0, 7.0], directory / "latency" / "titan_1.pt")
    torch.save(torch.tensor([1.5, 2.5, 3.5]), directory / "latency" / "pixel2.pt")
    return directory


def write_nds(directory, name="DARTS", net=None, grouped=False):
    entry = {
        "net": net or {"genotype": GENOTYPE, "depth": 8, "width": 16, "aux": False, "drop_prob": 0.0},
        "test_ep_top1": [60.0, 12.5],
        "params": 123456,
        "flops": 7890,
        "optim": {},
    }
    content = {"top": [entry], "mid": [entry]} if grouped else [entry, entry]
    (directory / f"{name}.json").write_text(json.dumps(content))
    return directory / f"{name}.json"


GPT_ARCHS = [  # the lists have values for the largest number of blocks
    {
        "sample_embed_dim": 192,
        "sample_n_layer": 10,
        "sample_n_head": [4, 8, 12] * 4,
        "sample_mlp_ratio": [2, 3, 4] * 4,
        "sample_bias": True,
        "sample_layer_indices": list(range(10)),
    },
    {
        "sample_embed_dim": 768,
        "sample_n_layer": 12,
        "sample_n_head": [12] * 12,
        "sample_mlp_ratio": [4] * 12,
        "sample_bias": False,
        "sample_layer_indices": list(range(12)),
    },
]


def hw_gpt_latency(arch, processor, times=(12.0, 11.0, 99.0), units=("ms", "ms", "ms"), **changes):
    """An entry of efficiency_observations; what was not measured is None or an empty list."""
    other = "cpu" if processor == "gpu" else "gpu"
    return {
        **{"arch": arch, f"{processor}_lat": np.float64(40.0), f"{processor}_lat_std": np.float64(1.0)},
        **{f"{other}_lat": None, f"{other}_lat_std": None},
        **{f"unit_{processor}": list(units), f"unit_{other}": []},
        **{f"times_profiler_{processor}": list(times), f"times_profiler_{other}": []},
        **{"flops": 2_000_000, "macs": 1_000_000, "params": 5_000},
        **{f"mean_energy_{processor}": np.float64(0.5), f"mean_energy_{other}": None, "unit_energy": "Wh"},
        **changes,
    }


def hw_gpt_energy(arch, energies=(0.001, 0.004, 0.002)):
    """An entry of efficiency_energy_observations_tracker."""
    return {
        **{"arch": arch, "mean_energy_gpu": np.float64(0.002), "mean_energy_cpu": None},
        **{"energy_gpu": list(energies), "energy_cpu": [], "unit_energy": "KWh"},
    }


def write_hw_gpt_bench(directory, files=None):
    """Files of HW-GPT-Bench, each with a list of entries."""
    first, second = GPT_ARCHS
    files = files or {
        "raw_results_hw/latency_a100/efficiency_observations_0_2500.pkl": [
            hw_gpt_latency(first, "gpu"),
            hw_gpt_latency(second, "gpu", (0.5, 0.25), ("s", "s")),
        ],
        "raw_results_hw/latency_a100/efficiency_energy_observations_tracker_0_2500.pkl": [
            hw_gpt_energy(first)
        ],
        "raw_results_hw/latency_cpu_p100/efficiency_observations_2500_5000.pkl": [
            hw_gpt_latency(first, "cpu", (3.0, 900.0, 1.0), ("s", "ms", "s"))
        ],
        "memory/latency_a100/efficiency_observations_0_10000.pkl": [
            {"arch": second, "mean_mem": 341.25, "std_mem": 0.0}
        ],
        "arch_ppl_bench_s/ppl_observations_tracker_0_1000.pkl": [
            {"accuracy": 0.375, "perplexity": 33.125, "arch": second}
        ],
    }
    for name, entries in files.items():
        path = directory / "HW-GPT-Bench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(entries))
    return directory / "HW-GPT-Bench"
