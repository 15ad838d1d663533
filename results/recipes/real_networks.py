"""Write the 210 networks of tables/devices/real.parquet as ONNX files with random weights.

    python results/recipes/real_networks.py $NAS_RLM_DATA/networks/timm.parquet runs/real/onnx

181 small networks of timm, at most four of a family, and 29 exports of models that are defined here: for
language, text, segmentation, detection, super-resolution, audio and tables.

"""

from __future__ import annotations

import math
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from nas_rlm.data.network_files import family_of_model

GMACS_AND_FAMILY_SIZES = ((1.0, 4), (2.5, 2), (4.6, 1))  # networks of a family up to this many GMACs
MAX_MILLION_PARAMETERS = 60
OPERATOR_SET = 17
SEQUENCE = 128
# Inputs of operators that are ones, such as scales and variances; other weights are random.
ONES = {
    "BatchNormalization": (1, 4),
    "LayerNormalization": (1,),
    "InstanceNormalization": (1,),
    "Mul": (0, 1),
    "Div": (1,),
}


def select(rows: list[dict[str, Any]]) -> list[str]:
    """Return the identifiers of small networks, in an order that depends on a fixed seed."""
    chosen: dict[str, str] = {}  # identifier by model
    sizes: Counter[str] = Counter()
    for max_gmacs, max_size in GMACS_AND_FAMILY_SIZES:
        for row in (rows[i] for i in np.random.default_rng(0).permutation(len(rows))):
            family = family_of_model(row["model"])
            is_small = row["gmacs"] and row["gmacs"] <= max_gmacs
            is_small = is_small and row["params_m"] <= MAX_MILLION_PARAMETERS
            if is_small and row["model"] not in chosen and sizes[family] < max_size:
                sizes[family] += 1
                chosen[row["model"]] = row["identifier"]
    return [*chosen.values()]


def fill(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return a model with random values for the weights whose external data is missing."""
    rng = np.random.default_rng(seed)
    uses: dict[str, tuple[str, int]] = {}
    for node in reversed(model.graph.node):  # users of an Identity come before it
        for position, name in enumerate(node.input):
            use = node.op_type, position
            use = uses.get(node.output[0], use) if node.op_type == "Identity" else use
            if name not in uses or _is_one(*use):  # a variance must be positive, whatever else reads it
                uses[name] = use
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            values = _values(tuple(tensor.dims), dtype, *uses.get(tensor.name, ("", 0)), rng)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def _is_one(operator: str, position: int) -> bool:
    """Return whether a weight that an operator reads at a position is 1."""
    return position in ONES.get(operator, ())


def _values(
    shape: tuple[int, ...], dtype: np.dtype, operator: str, position: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the values of a weight that an operator reads at a position."""
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    if _is_one(operator, position):
        return np.ones(shape, dtype)
    if len(shape) <= 1:
        return np.asarray(0.01 * rng.standard_normal(shape)).astype(dtype)
    fan_in = shape[0] if operator == "MatMul" and len(shape) == 2 else math.prod(shape[1:])
    return (rng.standard_normal(shape) / max(1, fan_in) ** 0.5).astype(dtype)


class LastHiddenState(nn.Module):
    """A model of transformers, without its other outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).last_hidden_state


class LanguageModel(nn.Module):
    """A language model like GPT-2."""

    def __init__(self, width: int, depth: int, heads: int, ratio: int, words: int = 4000) -> None:
        super().__init__()
        self.heads = heads
        self.embedding, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.positions = nn.Parameter(torch.randn(SEQUENCE, width) * 0.02)
        self.head = nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "mlp_norm": nn.LayerNorm(width),
                    "up": nn.Linear(width, ratio * width),
                    "down": nn.Linear(ratio * width, width),
                }
            )
            for _ in range(depth)
        )
        self.register_buffer("causal", torch.full((SEQUENCE, SEQUENCE), -1e9).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        batch, length, width = x.shape
        for block in self.blocks:
            q, k, v = (
                y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                for y in block["qkv"](block["norm"](x)).split(width, 2)
            )
            weights = (q @ k.transpose(2, 3) * (width // self.heads) ** -0.5 + self.causal).softmax(-1)
            x = x + block["out"]((weights @ v).transpose(1, 2).reshape(batch, length, width))
            x = x + block["down"](F.gelu(block["up"](block["mlp_norm"](x))))
        return self.head(self.norm(x))


def convolution(in_channels: int, out_channels: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU."""
    layer = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out_channels), nn.ReLU())


class UNet(nn.Module):
    """A network for segmentation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width * 2**k for k in range(4)]
        self.down = nn.ModuleList(
            nn.Sequential(convolution(i, o), convolution(o, o))
            for i, o in zip([3, *widths], widths, strict=False)
        )
        up = [(widths[k + 1], widths[k]) for k in (2, 1, 0)]
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in up)
        self.merge = nn.ModuleList(nn.Sequential(convolution(2 * o, o), convolution(o, o)) for _, o in up)
        self.head = nn.Conv2d(width, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped: list[Tensor] = []
        for number, block in enumerate(self.down):
            x = block(x)
            if number < 3:
                skipped.append(x)
                x = F.max_pool2d(x, 2)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skipped.pop()], 1))
        return self.head(x)


class Detector(nn.Module):
    """A detector with three scales whose features are merged."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        stem = convolution(3, w, 3, 2), convolution(w, 2 * w, 3, 2), convolution(2 * w, 2 * w)
        self.stem = nn.Sequential(*stem)
        self.scale8 = nn.Sequential(convolution(2 * w, 4 * w, 3, 2), convolution(4 * w, 4 * w))
        self.scale16 = nn.Sequential(convolution(4 * w, 8 * w, 3, 2), convolution(8 * w, 8 * w))
        self.scale32 = nn.Sequential(convolution(8 * w, 16 * w, 3, 2), convolution(16 * w, 8 * w, 1))
        self.lateral = nn.ModuleList(convolution(i, 2 * w, 1) for i in (8 * w, 4 * w, 8 * w))
        self.heads = nn.ModuleList(
            nn.Sequential(convolution(2 * w, 2 * w), nn.Conv2d(2 * w, 24, 1)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a = self.scale8(self.stem(x))
        b = self.scale16(a)
        c = self.lateral[2](self.scale32(b))
        b = self.lateral[0](b) + F.interpolate(c, scale_factor=2.0)
        a = self.lateral[1](a) + F.interpolate(b, scale_factor=2.0)
        pairs = zip(self.heads, (a, b, c), strict=True)
        return tuple(head(y).flatten(2).sigmoid() for head, y in pairs)


def super_resolution(width: int, depth: int) -> nn.Sequential:
    """Return a network that doubles the size of an image."""
    body = [m for _ in range(depth) for m in (nn.Conv2d(width, width, 3, 1, 1), nn.PReLU(width))]
    first, last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 12, 3, 1, 1)
    return nn.Sequential(first, nn.ReLU(), *body, last, nn.PixelShuffle(2))


def keyword_spotting(width: int) -> nn.Sequential:
    """Return a network of one-dimensional convolutions over audio features."""
    body = [
        m
        for _ in range(6)
        for m in (
            nn.Conv1d(width, width, 9, 1, 4, groups=width),
            nn.Conv1d(width, width, 1),
            nn.BatchNorm1d(width),
            nn.SiLU(),
        )
    ]
    first = nn.Conv1d(40, width, 9, 2, 4), nn.BatchNorm1d(width), nn.ReLU()
    return nn.Sequential(*first, *body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 35))


class Recurrent(nn.Module):
    """A recurrent network over audio features."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], width: int, depth: int) -> None:
        super().__init__()
        self.body, self.head = kind(40, width, depth, batch_first=True), nn.Linear(width, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0])


def perceptron(inputs: int, width: int, depth: int) -> nn.Sequential:
    """Return a multi-layer perceptron."""
    body = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), *body, nn.Linear(width, 10))


def encoder(width: int, depth: int, heads: int) -> nn.Module:
    """Return an encoder of text."""
    sizes = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads}
    settings = {"vocab_size": 8000, "intermediate_size": 4 * width, "attn_implementation": "eager"}
    return LastHiddenState(BertModel(BertConfig(**sizes, **settings)))


def own_models() -> dict[str, tuple[Callable[[], nn.Module], Tensor]]:
    """Return by name a function that makes a model, and its input."""
    models: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {}
    tokens = torch.randint(0, 1000, (1, SEQUENCE))
    for name, *sizes in (
        ("tiny", 128, 2, 2),
        ("mini", 256, 4, 4),
        ("small", 512, 4, 8),
        ("medium", 512, 8, 8),
    ):
        models[f"bert-{name}"] = (lambda s=sizes: encoder(*s)), tokens
    for sizes in (
        *((128, 2, 2, 4), (192, 4, 3, 4), (256, 4, 4, 2), (256, 6, 8, 4)),
        *((384, 6, 6, 4), (512, 4, 8, 3), (384, 8, 6, 2), (512, 8, 8, 4)),
    ):
        models["gpt-{}-{}-{}".format(*sizes[:2], sizes[3])] = (lambda s=sizes: LanguageModel(*s)), tokens
    for width, side in ((8, 128), (16, 128), (16, 192), (24, 160)):
        models[f"unet-{width}-{side}"] = (lambda w=width: UNet(w)), torch.randn(1, 3, side, side)
    for width, side in ((8, 256), (16, 256), (16, 320)):
        models[f"det-{width}-{side}"] = (lambda w=width: Detector(w)), torch.randn(1, 3, side, side)
    for width, depth, side in ((16, 4, 96), (32, 6, 96), (24, 8, 128)):
        image = torch.randn(1, 3, side, side)
        models[f"sr-{width}-{depth}-{side}"] = (lambda s=(width, depth): super_resolution(*s)), image
    for width in (128, 384):
        models[f"kws-{width}"] = (lambda w=width: keyword_spotting(w)), torch.randn(1, 40, 400)
    for kind, width, depth in ((nn.LSTM, 128, 1), (nn.LSTM, 256, 2), (nn.GRU, 256, 2)):
        name = f"{kind.__name__.lower()}-{width}-{depth}"
        models[name] = (lambda s=(kind, width, depth): Recurrent(*s)), torch.randn(1, 100, 40)
    for inputs, width, depth in ((784, 512, 3), (256, 2048, 4)):
        models[f"mlp-{width}-{depth}"] = (
            (lambda s=(inputs, width, depth): perceptron(*s)),
            torch.randn(1, inputs),
        )
    return models


def main(timm_parquet: Path, directory: Path) -> None:
    """Write all files into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    columns = ["identifier", "model", "gmacs", "params_m"]
    selected = {*select(pq.read_table(timm_parquet, columns=columns).to_pylist())}
    for batch in pq.ParquetFile(timm_parquet).iter_batches(16, columns=["identifier", "onnx"]):
        for row in batch.to_pylist():
            if (name := row["identifier"]) in selected:
                model = fill(onnx.load_from_string(row["onnx"]), zlib.crc32(name.encode()))
                onnx.save(model, directory / f"{name.replace('@', '-')}.onnx")
    warnings.filterwarnings("ignore")  # of the exporter
    for name, (make, example) in own_models().items():
        path = directory / f"own-{name}.onnx"
        torch.onnx.export(make().eval(), (example,), str(path), dynamo=False, opset_version=OPERATOR_SET)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
