import pytest

from nas_rlm.data.importers import import_benchmark
from tests.nas_rlm.data.importers.published_files import CELL_NOTATIONS, CELLS, write_nas_bench_201


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
