import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.files import ASSETS
from nas_rlm.model.network import Config, Network
from nas_rlm.surrogates.gaussian_process import ADAM_STEPS
from nas_rlm.text import Tokenizer
from tests.preloaded_python import preloaded_python
from tests.quick_constants import QUICK_CONSTANTS, WITHOUT_QUICK_CONSTANTS

torch.set_num_threads(1)
gc.disable()  # until all tests are imported, since imports leave little to collect
# Examples of each property; NAS_RLM_EXAMPLES=500 searches deeper.
hypothesis.settings.register_profile(
    "nas-rlm", max_examples=int(os.environ.get("NAS_RLM_EXAMPLES", "25")), deadline=None
)
hypothesis.settings.load_profile("nas-rlm")
LONG_FILES = ("test_docs.py", "test_docstrings.py", "test_golden.py", "test_notebooks.py")  # share nothing
LONG_FILES_WITH_FIXTURES = ("test_wheel.py", "test_normalization.py", "test_measured_search.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files whose tests take longest, so that no worker has one of them at the end."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES + LONG_FILES_WITH_FIXTURES)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, less often than by default, since little of it is large."""
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect none of the objects of the tests at the end, which would take seconds."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, send tests to workers by file, and those of `LONG_FILES` one at a time."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return nodeid if Path(file).name in LONG_FILES else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def quick_constants() -> Iterator[None]:
    """Use the constants of `tests.quick_constants`, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK_CONSTANTS.items():
            patch.setattr(name, value)
        yield


@pytest.fixture
def whole_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit Gaussian processes in as many steps as users do; processes have no constant of tests."""
    monkeypatch.setenv(WITHOUT_QUICK_CONSTANTS, "1")
    monkeypatch.setattr("nas_rlm.surrogates.gaussian_process.ADAM_STEPS", ADAM_STEPS)


@pytest.fixture(autouse=True)
def own_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the search spaces that a test registers."""
    monkeypatch.setattr(search_spaces, "_registered", dict(search_spaces._registered))


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Path]:
    """Return a directory with the commands python and nas-rlm that have imported the package already."""
    with preloaded_python() as directory:
        yield directory


@pytest.fixture
def quick_processes(preloaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes without the seconds that their imports take."""
    monkeypatch.setattr(sys, "executable", str(preloaded / "python"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the directory with the public tables; tests that use it are skipped without it."""
    root = Path(os.environ.get("NAS_RLM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "architectures").is_dir():
        pytest.skip(f"no tables at {root}: set NAS_RLM_DATA to the directory with architectures/")
    return root


@pytest.fixture(scope="session")
def shipped_rlm() -> RLM:
    """Return the shipped model; tests that use it are skipped without it."""
    try:
        return RLM.load("nas")
    except FileNotFoundError:
        pytest.skip("no shipped model in nas_rlm/assets/nas")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of an untrained network of the smallest size with three objectives.

    With the shipped tokenizer texts have few tokens, which makes predictions cheap.
    """
    tokenizer = Tokenizer.load(ASSETS / "nas" / "tokenizer.model")
    torch.manual_seed(22)  # predictions of cells are positive and differ
    config = Config(tokenizer.vocab_size, ("accuracy", "latency/pixel3", "latency/eyeriss"), size=1)
    directory = tmp_path_factory.mktemp("checkpoints") / "tiny"
    RLM(Network(config, tokenizer.kinds()), tokenizer).save(directory)
    return directory
