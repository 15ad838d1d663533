"""Reference networks outside the search spaces: architectures of transformers, exported to ONNX by torch."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from nas_rlm.graph.torch_export import operators_read_once
from nas_rlm.utils.extras import require
from nas_rlm.utils.validation import suggest

IMAGE_SIZE, SEQUENCE_LENGTH, VOCABULARY_SIZE = 64, 32, 500
_SMALL_TRANSFORMER = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}

# The model class of transformers and its configuration. The depths are those of the published networks; the
# widths are smaller, since they would only change the shapes in the text.
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
    "vit": ("ViT", {**_SMALL_TRANSFORMER, "image_size": IMAGE_SIZE}),
    "bert": ("Bert", {**_SMALL_TRANSFORMER, "vocab_size": VOCABULARY_SIZE}),
    "distilbert": ("DistilBert", {"dim": 64, "n_heads": 4, "hidden_dim": 128, "vocab_size": VOCABULARY_SIZE}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_head": 4, "vocab_size": VOCABULARY_SIZE, "use_cache": False}),
}
_LANGUAGE_MODELS = ("bert", "distilbert", "gpt2")
EXPORTERS = ("dynamo", "torchscript")
_DYNAMO_ONLY = ("gpt2",)  # torchscript lacks an operator of its attention mask


def build_network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """Return a network with random weights, and an input for it.

    Examples:
        >>> module, example = build_network("resnet50")  # doctest: +SKIP

    Args:
        name: one of `NETWORKS`.

    Raises:
        ValueError: there is no such network, or transformers is not installed.
    """
    if name not in NETWORKS:
        raise ValueError(f"no network {name!r}; {suggest(name, NETWORKS)}")
    check_dependencies()
    import transformers

    class_prefix, settings = NETWORKS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{class_prefix}Config")(**settings)
    module = _FirstOutput(getattr(transformers, f"{class_prefix}Model")(config))
    if name in _LANGUAGE_MODELS:
        return module, torch.zeros(1, SEQUENCE_LENGTH, dtype=torch.int64)
    return module, torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE)


def check_dependencies() -> None:
    """Check that the packages for building and exporting the networks are installed.

    Raises:
        ValueError: one of them is missing.
    """
    require("foreign", "a reference network")


def export_all(name: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Export a network with each of torch's exporters that supports it.

    Args:
        name: one of `NETWORKS`.

    Yields:
        The name of the exporter and the model.
    """
    for exporter in EXPORTERS[:1] if name in _DYNAMO_ONLY else EXPORTERS:
        yield exporter, export_to_onnx(*build_network(name), exporter)


def export_to_onnx(
    module: nn.Module, example: torch.Tensor, exporter: str = "dynamo", optimize: bool = True
) -> onnx.ModelProto:
    """Export a module to ONNX in evaluation mode, without fusing batch normalisation.

    Args:
        module: the module.
        example: an input for it.
        exporter: one of `EXPORTERS`.
        optimize: whether dynamo may fuse and fold operators.
    """
    module.eval()
    training = torch.onnx.TrainingMode.PRESERVE
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as directory:
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            with operators_read_once():
                program = torch.onnx.export(module, (example,), dynamo=True, optimize=optimize, verbose=False)
            assert program is not None
            return program.model_proto
        path = Path(directory) / "network.onnx"
        torch.onnx.export(module, (example,), path, dynamo=False, opset_version=17, training=training)
        return onnx.load(path)


class _FirstOutput(nn.Module):
    """A model that returns only the first of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden states."""
        first: torch.Tensor = self.model(x)[0]
        return first
