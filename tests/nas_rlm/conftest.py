from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import search_spaces
from nas_rlm import RLM
from nas_rlm.graph.costs import compute_costs
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.latency import layer_network
from nas_rlm.surrogates.latency.layer_fitting import fit_layers_of_texts
from nas_rlm.text import from_architecture
from nas_rlm.text.parser import parse_network

NUM_NETWORKS = 40  # of the layer surrogate
LAYER_OBJECTIVES = ("latency/cortexA76cpu", "latency/mybox")


@pytest.fixture
def change_torch() -> Iterator[Callable[[], None]]:
    """Yield a function that changes the settings of torch which user code may change, until the end."""
    num_threads = torch.get_num_threads()

    def change() -> None:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_num_threads(num_threads + 1)

    yield change
    torch.set_num_threads(num_threads)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.fixture(scope="session")
def layer_checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint with a small layer surrogate of `LAYER_OBJECTIVES` for networks of any family.

    The latencies are linear in the costs of cells of NAS-Bench-201, which are in three families.
    """
    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(0)
    texts = [from_architecture(space, space.sample(rng)) for _ in range(NUM_NETWORKS)]
    sums = [compute_costs(parse_network(text)).sums() for text in texts]
    latencies = np.array([1 + macs / 1e7 + activations / 1e6 for macs, _, activations in sums])
    values = dict(zip(LAYER_OBJECTIVES, (latencies, 2 * latencies), strict=True))
    families = [f"family{i % 3}" for i in range(NUM_NETWORKS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_network, "MIN_STEPS", 20)
        surrogate = fit_layers_of_texts(texts, values, families)
    rlm = RLM.load(tiny_checkpoint).with_objectives(LAYER_OBJECTIVES)
    rlm.surrogates = {"mynets": [surrogate]}
    rlm.trained_on = {"mynets": TrainedOn(NUM_NETWORKS, LAYER_OBJECTIVES)}
    directory = tmp_path_factory.mktemp("checkpoints") / "layers"
    rlm.save(directory)
    return directory


@pytest.fixture
def layer_rlm(layer_checkpoint: Path) -> RLM:
    """Return the model of `layer_checkpoint`."""
    return RLM.load(layer_checkpoint)


@pytest.fixture
def cell_files(tmp_path: Path) -> list[Path]:
    """Return the ONNX files of two cells like those of the layer surrogate."""
    import onnx

    space, rng = search_spaces.get("nasbench201"), np.random.default_rng(1)
    files = [tmp_path / f"cell{i}.onnx" for i in range(2)]
    for file in files:
        onnx.save(space.to_onnx(space.sample(rng)), file)
    return files
