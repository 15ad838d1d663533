import pytest

from nas_rlm.data.importers import import_benchmark
from tests.nas_rlm.data.importers.published_files import SIZE_NOTATIONS, write_nats_bench


def test_accuracies_are_means_over_seeds(tmp_path):
    with pytest.warns(UserWarning, match="is read as a pickle"):
        rows = import_benchmark("nats_size", write_nats_bench(tmp_path), allow_pickle=True)
    assert [r.arch_str for r in rows] == SIZE_NOTATIONS
    assert rows[0].targets["accuracy"] == 50 + 4 + 0.5 + 7
