"""Reference networks from elsewhere: architectures of transformers, exported by torch."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from nas_rlm.utils.validation import hint

SIDE, WORDS, LETTERS = 64, 32, 500  # of an image; of a sentence and of the vocabulary
_THIN = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}

# The depths are those of the published networks; the widths are smaller, since only their names would differ.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": (
        "ResNet",
        {"depths": [2] * 4, "hidden_sizes": [16, 32, 64, 128], "layer_type": "basic", "embedding_size": 16},
    ),
    "resnet50": ("ResNet", {"hidden_sizes": [32, 64, 128, 256], "embedding_size": 16}),
    "regnet_y": ("RegNet", {"depths": [2, 6, 12, 2], "hidden_sizes": [32, 64, 96, 128], "groups_width": 16}),
    "mobilenet_v1": ("MobileNetV1", {"depth_multiplier": 0.25}),
    "mobilenet_v2": ("MobileNetV2", {"depth_multiplier": 0.35}),
    "convnext": ("ConvNext", {"hidden_sizes": [16, 32, 64, 128]}),
    "vit": ("ViT", {**_THIN, "image_size": SIDE}),
    "bert": ("Bert", {**_THIN, "vocab_size": LETTERS}),
    "distilbert": ("DistilBert", {"dim": 64, "n_heads": 4, "hidden_dim": 128, "vocab_size": LETTERS}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_head": 4, "vocab_size": LETTERS, "use_cache": False}),
}
_READERS = ("bert", "distilbert", "gpt2")
EXPORTERS = ("dynamo", "torchscript")
_DYNAMO_ALONE = ("gpt2",)  # torchscript has no operator for what its mask is made with


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network with random weights, and an input for it.

    >>> module, example = network("resnet50")  # doctest: +SKIP

    Args:
        name: one of `NETWORKS`.

    Raises:
        ValueError: there is no such network, or transformers is not installed.
    """
    if name not in NETWORKS:
        raise ValueError(f"no network {name!r}; {hint(name, NETWORKS)}")
    check_installed()
    import transformers

    kind, settings = NETWORKS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**settings)
    module = _First(getattr(transformers, f"{kind}Model")(config))
    if name in _READERS:
        return module, torch.zeros(1, WORDS, dtype=torch.int64)
    return module, torch.zeros(1, 3, SIDE, SIDE)


def check_installed() -> None:
    """Refuse to go on without what these networks are made with."""
    missing = [name for name in ("transformers", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ValueError(
            f"reference networks need {' and '.join(missing)}, expected after: pip install -e '.[foreign]'"
        )


def exports(name: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    """A network of `NETWORKS` by each exporter that can write it: the exporter's name and the model."""
    for exporter in EXPORTERS[:1] if name in _DYNAMO_ALONE else EXPORTERS:
        yield exporter, exported(*network(name), exporter)


def exported(
    module: nn.Module, example: torch.Tensor, exporter: str = "dynamo", optimize: bool = True
) -> onnx.ModelProto:
    """A module as ONNX, batch norm left as it is.

    Args:
        module: exported as it is in evaluation mode.
        example: an input for it.
        exporter: one of torch's two, "dynamo" or "torchscript".
        optimize: whether dynamo may merge and fold operators.
    """
    module.eval()
    training = torch.onnx.TrainingMode.PRESERVE
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            program = torch.onnx.export(module, (example,), dynamo=True, optimize=optimize, verbose=False)
            assert program is not None
            return program.model_proto
        path = Path(folder) / "network.onnx"
        torch.onnx.export(module, (example,), path, dynamo=False, opset_version=17, training=training)
        return onnx.load(path)


class _First(nn.Module):
    """The first of a network's outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The hidden states."""
        first: torch.Tensor = self.model(x)[0]
        return first
