import pytest

from nas_rlm.data.importers.registry import import_benchmark
from tests.nas_rlm.data.importers.published_files import (
    CELL_NOTATIONS,
    CELLS,
    arch_results,
    write_compressed,
    write_nas_bench_201,
    write_simple,
)


def test_accuracies_are_means_over_seeds_after_the_last_epoch(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        rows = import_benchmark("nasbench201", write_nas_bench_201(tmp_path), allow_pickle=True)
    assert [r.arch_str for r in rows] == CELL_NOTATIONS
    # 50 + index + epochs + 0.5 for the seeds + length of the dataset's name
    assert rows[1].targets["accuracy"] == 51 + 4 + 0.5 + 7
    assert rows[1].targets["accuracy/cifar100"] == 51 + 4 + 0.5 + 8
    assert rows[1].targets["accuracy/imagenet16_120"] == 51 + 4 + 0.5 + 14
    assert rows[1].targets["accuracy/cifar10_12ep"] == 51 + 2 + 0.5 + 7
    assert rows[1].targets["params"] == CELLS.params(CELLS.parse(CELL_NOTATIONS[1]))


@pytest.mark.filterwarnings("ignore:.*read as a pickle")
@pytest.mark.parametrize("is_simple", [False, True])
def test_the_topology_space_of_nats_bench_is_the_same_space(tmp_path, is_simple):
    results = arch_results(CELL_NOTATIONS, "200", "12", 4)
    published = write_simple(tmp_path / "NATS-tss-v1_0-3ffb9-simple", results)
    if not is_simple:
        published = write_compressed(tmp_path / "NATS-tss-v1_0-3ffb9.pickle.pbz2", results)
    rows = import_benchmark("nasbench201", published, allow_pickle=True)
    older = import_benchmark("nasbench201", write_nas_bench_201(tmp_path), allow_pickle=True)
    assert rows == older
