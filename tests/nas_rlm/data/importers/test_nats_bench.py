import pytest

from nas_rlm.data.importers import arch_results as arch_results_module
from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import (
    SIZE_NOTATIONS,
    arch_results,
    write_compressed,
    write_nats_bench,
    write_simple,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*read as a pickle")


def test_accuracies_are_means_over_seeds(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        rows = import_benchmark("nats_size", write_nats_bench(tmp_path), allow_pickle=True)
    assert [r.arch_str for r in rows] == SIZE_NOTATIONS
    assert rows[0].targets["accuracy"] == 50 + 4 + 0.5 + 7


def content(**changes):
    """The content of the published file, for two networks."""
    return arch_results(SIZE_NOTATIONS, "90", "12", 4) | changes


def test_simple_files_are_read_like_the_whole_file(tmp_path):
    whole = import_benchmark("nats_size", write_nats_bench(tmp_path), allow_pickle=True)
    directory = write_simple(tmp_path / "NATS-sss-v1_0-50262-simple", content())
    assert import_benchmark("nats_size", directory, allow_pickle=True) == whole
    (directory / "000000.pickle.pbz2").unlink()
    (directory / "notes.txt").write_text("x")
    with pytest.warns(UserWarning, match=r"1 entry .*: 000000.pickle.pbz2: there is no such file"):
        assert import_benchmark("nats_size", directory, allow_pickle=True) == whole[1:]


@pytest.mark.parametrize("damage", [b"", b"BZh9", b"\x80\x05]q\x00."])
def test_a_damaged_simple_file_is_left_out(tmp_path, damage):
    directory = write_simple(tmp_path / "simple", content())
    (directory / "000001.pickle.pbz2").write_bytes(damage)
    with pytest.warns(UserWarning, match=r"1 entry is not valid and was left out: 000001.pickle.pbz2"):
        (row,) = import_benchmark("nats_size", directory, allow_pickle=True)
    assert row.arch_str == SIZE_NOTATIONS[0]


def test_simple_files_are_read_one_at_a_time(tmp_path, monkeypatch):
    loads, rows = [], []
    load, row = arch_results_module._load, arch_results_module.Row
    monkeypatch.setattr(arch_results_module, "_load", lambda path: loads.append(len(rows)) or load(path))
    monkeypatch.setattr(arch_results_module, "Row", lambda *a, **k: rows.append(1) or row(*a, **k))
    import_benchmark("nats_size", write_simple(tmp_path / "simple", content()), allow_pickle=True)
    assert loads == [0, 0, 1]  # the meta file, then each file after the row of the one before it


@pytest.mark.parametrize("name", ["nats_size", "nasbench201"])
def test_the_file_of_one_architecture_is_refused(tmp_path, name):
    directory = write_simple(tmp_path / "simple", content())
    with pytest.raises(ValueError, match=r"'simple' files, give the directory that has them and meta.pickle"):
        import_benchmark(name, directory / "000000.pickle.pbz2", allow_pickle=True)
    (directory / "meta.pickle.pbz2").unlink()
    with pytest.raises(ValueError, match=r"the directory has no meta\.pickle"):
        import_benchmark(name, directory, allow_pickle=True)
    with pytest.raises(ValueError, match="use --allow-pickle"):
        import_benchmark(name, directory)


@pytest.mark.parametrize("value", [float("nan"), -1.0, None, "91.2", 101])
def test_a_seed_that_is_not_valid_is_left_out_of_the_mean(tmp_path, value):
    changed = content()
    changed["arch2infos"][0]["90"]["all_results"]["cifar10", 777]["eval_acc1es"]["ori-test@3"] = value
    path = write_compressed(tmp_path / "sss.pickle.pbz2", changed)
    with pytest.warns(UserWarning, match=r"^1 entry of accuracy is not valid .*: nats_size_0: "):
        rows = import_benchmark("nats_size", path, allow_pickle=True)
    assert [row.targets["accuracy"] for row in rows] == [50 + 4 + 1 + 7, 51 + 4 + 0.5 + 7]
    assert rows[0].targets["accuracy/cifar100"] == 50 + 4 + 0.5 + 8


def test_missing_results_are_missing_numbers(tmp_path):
    changed = content()
    del changed["arch2infos"][0]["90"], changed["arch2infos"][1]["12"]
    path = write_compressed(tmp_path / "sss.pickle.pbz2", changed)
    with pytest.warns(UserWarning, match=r"^1 entry of accuracy/cifar10_12ep .*no results with the key 12"):
        first, second = import_benchmark("nats_size", path, allow_pickle=True)
    assert first.targets.keys() == {"accuracy/cifar10_12ep", "params", "flops"}
    assert second.targets.keys() == {
        *("accuracy", "accuracy/cifar100", "accuracy/imagenet16_120", "params", "flops")
    }


@pytest.mark.parametrize(
    "change",
    [
        {"meta_archs": ["8:8:8:8:9", SIZE_NOTATIONS[1]]},
        {"meta_archs": [None, SIZE_NOTATIONS[1]]},
        {"arch2infos": lambda infos: {-1: infos[0], 1: infos[1]}},
        {"arch2infos": lambda infos: {7: infos[0], 1: infos[1]}},
        {"arch2infos": lambda infos: {"0": infos[0], 1: infos[1]}},
    ],
)
def test_architectures_that_are_not_valid_have_no_row(tmp_path, change):
    changed = content()
    changed |= {k: v(changed[k]) if callable(v) else v for k, v in change.items()}
    path = write_compressed(tmp_path / "sss.pickle.pbz2", changed)
    with pytest.warns(UserWarning, match="^1 entry is not valid"):
        (row,) = import_benchmark("nats_size", path, allow_pickle=True)
    assert (row.arch_str, row.targets["accuracy"]) == (SIZE_NOTATIONS[1], 51 + 4 + 0.5 + 7)
