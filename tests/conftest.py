import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the public tables; tests that need it are skipped where it is not there."""
    root = Path(os.environ.get("NAS_RLM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "architectures").is_dir():
        pytest.skip(f"no tables at {root}: set NAS_RLM_DATA to the folder that holds architectures/")
    return root


@pytest.fixture(scope="session")
def shipped_rlm():
    """The shipped model; tests that need it are skipped where it was not built yet."""
    from nas_rlm import RLM

    try:
        return RLM.load("nas")
    except FileNotFoundError:
        pytest.skip("no shipped model in nas_rlm/assets/nas")
