import pytest

from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import ARCHS


@pytest.fixture
def model(tiny_checkpoint):
    return ("--model", str(tiny_checkpoint))


@pytest.fixture
def archs(tmp_path):
    path = tmp_path / "archs.txt"
    path.write_text("".join(f"{a}\n" for a in ARCHS))
    return ("--space", "nasbench201", "--archs", str(path))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.parquet"
    write(
        path,
        [Row("nasbench201", a, {"latency/toaster": 3.0 + i, "accuracy": 90.0}) for i, a in enumerate(ARCHS)],
    )
    return path
