"""Small files in exactly the formats that the benchmarks' authors publish."""

import base64
import bz2
import json
import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import search_spaces
from nas_rlm.data.importers import official
from nas_rlm.data.importers.official import FORMATS, read_official

CELLS = search_spaces.get("nasbench201")
NAMES = [str(CELLS.sample(np.random.default_rng(i))) for i in range(3)]
SIZES = ["8:16:24:32:40", "64:64:64:64:64"]
GENOTYPE = {
    "normal": [["sep_conv_3x3", 0], ["skip_connect", 1]] * 4,
    "normal_concat": [2, 3, 4, 5],
    "reduce": [["max_pool_3x3", 0], ["dil_conv_5x5", 1]] * 4,
    "reduce_concat": [2, 3, 4, 5],
}
NETWORK_101 = ("010001000", "input,conv3x3-bn-relu,output")


def trained(names, final, early, epochs):
    """The dict that both benchmarks of Dong et al. store, made with the package's own classes."""
    api = pytest.importorskip("nas_201_api.api_utils", reason="nas-bench-201 is not installed")
    infos = {}
    for index, name in enumerate(names):
        infos[index] = {}
        for kind, length, datasets in (
            (final, epochs, ("cifar10", "cifar100", "ImageNet16-120")),
            (early, 2, ("cifar10",)),
        ):
            results = api.ArchResults(index, name)
            for dataset in datasets:
                for seed in (777, 888):
                    result = api.ResultsCount(dataset, None, {}, {}, 1.0, 2.0, {}, seed, length, None)
                    result.update_train_info({}, {}, {}, {})
                    split = "ori-test" if dataset == "cifar10" else "x-test"
                    keys = [f"{split}@{i}" for i in range(length)]
                    accuracy = 50 + index + length + (seed == 888) + len(dataset)
                    result.update_eval(*({k: float(v) for k in keys} for v in (accuracy, 0.5, 1.0)))
                    results.all_results[dataset, seed] = result
                    results.dataset_seed.setdefault(dataset, []).append(seed)
            infos[index][kind] = results.state_dict()
    return {"meta_archs": list(names), "arch2infos": infos, "evaluated_indexes": list(infos)}


def nasbench201(path):
    torch.save(trained(NAMES, "full", "less", 4), path / "nb201.pth")
    return path / "nb201.pth"


def nats_size(path):
    with bz2.open(path / "sss.pickle.pbz2", "wb") as file:
        pickle.dump(trained(SIZES, "90", "12", 4), file)
    return path / "sss.pickle.pbz2"


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def tf_record(content):
    length = struct.pack("<Q", len(content))
    crcs = (struct.pack("<I", official._masked_crc(part)) for part in (length, content))
    return length + next(crcs) + content + next(crcs)


def nasbench101(path):
    records = b""
    for epochs, accuracy in ((108, 0.9), (108, 0.92), (12, 0.5)):
        point = b"".join(
            bytes([number << 3 | 1]) + struct.pack("<d", value)
            for number, value in enumerate((epochs, 10.0, 0.99, accuracy, 0.8), 1)
        )
        halfway = bytes([1 << 3 | 1]) + struct.pack("<d", epochs / 2)
        message = b"".join(b"\x0a" + varint(len(p)) + p for p in (halfway, point))
        message += b"\x10" + varint(1_000_000) + b"\x19" + struct.pack("<d", 60.0)
        row = ["0" * 32, epochs, *NETWORK_101, base64.b64encode(message).decode()]
        records += tf_record(json.dumps(row).encode())
    (path / "nasbench.tfrecord").write_bytes(records)
    return path / "nasbench.tfrecord"


def hw_nas_bench(path):
    columns = {f"{d}_{k}": [1.0, 2.0, 3.0] for d in ("pixel3", "eyeriss") for k in ("latency", "energy")}
    content = {"config": [{"name": "infer.tiny", "C": 16, "N": 5, "arch_str": n} for n in NAMES], **columns}
    (path / "hw.pickle").write_bytes(pickle.dumps({"nasbench201": {"cifar10": content}, "fbnet": {}}))
    return path / "hw.pickle"


def help_folder(path, which):
    (path / "latency").mkdir()
    if which == "nasbench201":
        torch.save({name: i for i, name in reversed(list(enumerate(NAMES)))}, path / "str_arch2idx.pt")
    elif which == "fbnet":
        torch.save({"arch": [{"op_idx_list": [i] * 22} for i in range(3)]}, path / "metainfo.pt")
    else:
        arch = {"ks": [3] * 20, "e": [6] * 20, "d": [4] * 5, "r": [160]}
        torch.save({"arch": [arch] * 3}, path / "ofa_archs.pt")
    torch.save([5.0, 6.0, 7.0], path / "latency" / "titan_1.pt")
    torch.save(torch.tensor([1.5, 2.5, 3.5]), path / "latency" / "pixel2.pt")
    return path


def nds(path, name="DARTS", net=None, grouped=False):
    entry = {
        "net": net or {"genotype": GENOTYPE, "depth": 8, "width": 16, "aux": False, "drop_prob": 0.0},
        "test_ep_top1": [60.0, 12.5],
        "params": 123456,
        "flops": 7890,
        "optim": {},
    }
    content = {"top": [entry], "mid": [entry]} if grouped else [entry, entry]
    (path / f"{name}.json").write_text(json.dumps(content))
    return path / f"{name}.json"


def test_nasbench201(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        found = read_official("nasbench201", nasbench201(tmp_path), allow_pickle=True)
    assert [r.arch_str for r in found] == NAMES
    # mean of two seeds, after the last epoch: 50 + index + epochs + 0.5 + letters of the dataset's name
    assert found[1].targets["accuracy"] == 51 + 4 + 0.5 + 7
    assert found[1].targets["accuracy/cifar100"] == 51 + 4 + 0.5 + 8
    assert found[1].targets["accuracy/imagenet16_120"] == 51 + 4 + 0.5 + 14
    assert found[1].targets["accuracy/cifar10_12ep"] == 51 + 2 + 0.5 + 7
    assert found[1].targets["params"] == CELLS.params(CELLS.parse(NAMES[1]))


def test_nats_size(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        found = read_official("nats_size", nats_size(tmp_path), allow_pickle=True)
    assert [r.arch_str for r in found] == SIZES
    assert found[0].targets["accuracy"] == 50 + 4 + 0.5 + 7


def test_nasbench101_without_tensorflow(tmp_path):
    (found,) = read_official("nasbench101", nasbench101(tmp_path))
    assert json.loads(found.arch_str)["ops"] == NETWORK_101[1].split(",")
    assert found.targets == pytest.approx(
        {"accuracy": 92.0, "accuracy/cifar10_12ep": 50.0, "params": 1_000_000}
    )


def test_the_checksum_is_the_published_one():
    assert official._masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32


def test_hw_nas_bench(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        found = read_official("hw_nas_bench", hw_nas_bench(tmp_path), allow_pickle=True)
    assert found[2].targets == {"latency/pixel3": 3.0, "latency/eyeriss": 3.0}
    assert found[2].arch_str == NAMES[2]


@pytest.mark.parametrize("which", ["nasbench201", "fbnet", "ofa_mbv3"])
def test_help(tmp_path, which):
    found = read_official("help", help_folder(tmp_path, which))
    assert [r.space for r in found] == [which] * 3
    assert found[1].targets == {"latency/pixel2": 2.5, "latency/titan_1": 6.0}
    if which == "nasbench201":
        assert [r.arch_str for r in found] == NAMES


@pytest.mark.parametrize("grouped", [True, False])
def test_nds_cells(tmp_path, grouped):
    first, second = read_official("nds", nds(tmp_path, grouped=grouped))
    assert first.space == "nds_darts"
    assert first.targets == {"accuracy": 87.5, "params": 123456.0, "flops": 7890.0}
    assert search_spaces.get("nds_darts").parse(second.arch_str).depth == 8


@pytest.mark.parametrize(
    ("name", "block", "extra", "space"),
    [
        ("Vanilla", "vanilla_block", {}, "nds_vanilla"),
        ("ResNet", "res_basic_block", {}, "nds_resnet"),
        ("ResNeXt-A", "res_bottleneck_block", {"bot_muls": [0.5] * 3, "num_gs": [2] * 3}, "nds_resnext_a"),
        ("ResNeXt-B", "res_bottleneck_block", {"bot_muls": [1.0] * 3, "num_gs": [4] * 3}, "nds_resnext_b"),
    ],
)
def test_nds_stages(tmp_path, name, block, extra, space):
    net = {"block_type": block, "ds": [1, 2, 3], "ws": [16, 32, 64], "ss": [1, 2, 2], **extra}
    assert {r.space for r in read_official("nds", nds(tmp_path, name, net))} == {space}


def test_the_public_parquet_files(tmp_path):
    graph = {
        **{"identifier": "NB201_1", "space": "NB201", "uid": "", "arch_str": NAMES[0], "input": "text"},
        **{"target_metric": "val_accuracy", "val_accuracy": 91.0, "flops": 1.0, "params": 2.0},
        **{"metadata": "{'lat_pixel3': 3.0, 'zcp_snip': 4.0}", "metainformation": ""},
    }
    code = {
        **{"identifier": "1", "space": "KBSS", "input": "import triton", "target_metric": "val_accuracy"},
        **{"val_accuracy": 0.25, "metric_type": "latency_ms", "metadata": "{}"},
    }
    pq.write_table(pa.Table.from_pylist([graph]), tmp_path / "graph.parquet")
    pq.write_table(pa.Table.from_pylist([code]), tmp_path / "code.parquet")
    (row,) = read_official("parquet", tmp_path / "graph.parquet")
    assert row.targets == {"accuracy": 91.0, "flops": 1.0, "params": 2.0, "latency/pixel3": 3.0}
    (row,) = read_official("parquet", tmp_path / "code.parquet")
    assert (row.targets, row.input) == ({"latency": 0.25}, "import triton")


FILES = {
    **{"nasbench201": nasbench201, "nats_size": nats_size, "nasbench101": nasbench101},
    **{"hw_nas_bench": hw_nas_bench, "nds": nds},
}


@pytest.mark.filterwarnings("ignore:.*read as a pickle")
@pytest.mark.parametrize("name", FILES)
def test_truncated_and_foreign_files(tmp_path, name):
    path = FILES[name](tmp_path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-3], b"", b"\x80\x05]q\x00.", b'{"a": [{"b": 1}]}'):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path.name}.* (is not|holds nothing that was measured)"):
            read_official(name, path, allow_pickle=True)


def test_a_damaged_record(tmp_path):
    path = nasbench101(tmp_path)
    whole = bytearray(path.read_bytes())
    for position, message in ((3, "length is damaged"), (40, "a record is damaged")):
        damaged = whole.copy()
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            read_official("nasbench101", path)


def test_pickles_are_read_on_request_alone(tmp_path):
    path = hw_nas_bench(tmp_path)
    with pytest.raises(ValueError, match="can run any code when they are read: --allow-pickle"):
        read_official("hw_nas_bench", path)
    assert [name for name, known in FORMATS.items() if known.is_pickle] == [
        *("nasbench201", "nats_size", "hw_nas_bench")
    ]


def test_help_folders_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match="neither str_arch2idx"):
        read_official("help", tmp_path)
    help_folder(tmp_path, "fbnet")
    torch.save([1.0], tmp_path / "latency" / "short.pt")
    with pytest.raises(ValueError, match=r"latency/short.pt has 1 values for 3 architectures"):
        read_official("help", tmp_path)


def test_what_there_is_not(tmp_path):
    with pytest.raises(ValueError, match="no format 'nasbench202'; did you mean nasbench201"):
        read_official("nasbench202", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing at .* expected NAS-Bench-201-v1_1"):
        read_official("nasbench201", tmp_path / "none.pth")
    path = nds(tmp_path, "Mystery")
    with pytest.raises(ValueError, match="its name says no design space"):
        read_official("nds", path)
