"""A model as two ONNX graphs, so that it predicts without torch; see `nas_rlm.model.onnx_runtime`."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from nas_rlm._version import __version__
from nas_rlm.files import check_folder, write_bytes, write_text
from nas_rlm.model.checkpoint import Reading, Seen, Temperatures, mean_temperatures
from nas_rlm.model.network import HALF, HEAD, DecoderLayer, EncoderLayer, Network, StatementEncoder
from nas_rlm.model.onnx_runtime import CONFIG, DECODER, ENCODER, STATEMENTS, TOKENIZER
from nas_rlm.text import Tokenizer
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD


class Exportable(Protocol):
    """A model without its surrogates; `nas_rlm.RLM` is one."""

    network: Network
    tokenizer: Reading
    trained_on: Mapping[str, Seen]
    temperatures: Temperatures


OPSET = 17
BLOCKED = -1e4


def export_model(rlm: Exportable, folder: str | os.PathLike[str], int8: bool = False) -> None:
    """Write a model's network, which tells nearly the same without torch; its experts are left out.

    >>> export_model(RLM.load("nas-fast"), "runs/lite")

    Args:
        rlm: the model, with an encoder and a tokenizer of its own.
        folder: an empty one, or none yet.
        int8: matrices in eight bits, which is half the time where the processor has instructions for them.

    Raises:
        ValueError: the model reads with a frozen encoder, or the folder holds something.
    """
    if not isinstance(rlm.tokenizer, Tokenizer):
        raise ValueError(
            f"the model reads with {rlm.network.config.encoder}: expected one with its own encoder"
        )
    target = Path(folder)
    check_folder(target)
    graphs = _graphs(rlm.network)
    files = {name: _in_eight_bits(content) if int8 else content for name, content in graphs.items()}
    files[TOKENIZER] = rlm.tokenizer.proto
    config = rlm.network.config
    told = {
        "package": f"nas-rlm {__version__}",
        "objectives": config.objectives,
        "max_length": config.max_length,
        "exponent_digits": config.exponent_digits,
        "mantissa_digits": config.mantissa_digits,
        "seen": {space: seen.objectives for space, seen in rlm.trained_on.items()},
        "temperatures": {
            space: mean_temperatures(rlm.temperatures, space, config.objectives)
            for space in ("", *rlm.trained_on)
        },
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    for name, content in files.items():
        write_bytes(target / name, content)
    write_text(target / CONFIG, json.dumps(told, indent=1) + "\n")


def _graphs(network: Network) -> dict[str, bytes]:
    """The graphs of a network, by their files' names."""
    ids = torch.tensor([[1, 2, 3, PAD], [1, 2, 3, 4]])
    tokens = torch.tensor([[0, 1], [2, 3], [0, 2], [1, 1]])
    names = [f"{kind}{i}" for i in range(len(network.decoder)) for kind in ("keys", "values")]
    text = {0: "texts", 1: "tokens"}
    memory = {**{name: {0: "texts", 2: "tokens"} for name in names}, "padding": {0: "texts", 3: "tokens"}}
    found = {}
    encoder: nn.Module
    given: tuple[Tensor, ...]
    if network.statement_encoder:
        reader = _Reader(network.statement_encoder, network.pieces)
        axes = {"ids": {0: "statements", 1: "pieces"}, "states": {0: "statements"}}
        found[STATEMENTS] = _graph(reader, (ids,), ["ids"], ["states"], axes)
        encoder = _StatementsEncoder(network)
        states, sources = torch.zeros(2, 4, network.config.width), torch.zeros(2, 4, 4, dtype=torch.bool)
        given = states, ids[:, :, None], ids == PAD, sources
        asked = {
            "states": text,
            "names": {**text, 2: "names"},
            "filled": text,
            "sources": {**text, 2: "tokens"},
        }
    else:
        encoder, given, asked = _Encoder(network), (ids,), {"ids": text}
    with torch.no_grad():
        read = encoder(*given)
    found[ENCODER] = _graph(encoder, given, list(asked), [*names, "padding"], {**asked, **memory})
    found[DECODER] = _graph(
        _Decoder(network),
        (tokens, *read),
        ["digits", *names, "padding"],
        ["logits"],
        {"digits": {0: "decodings", 1: "written"}, **memory, "logits": {0: "decodings"}},
    )
    return found


def _graph(
    module: nn.Module,
    given: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: dict[str, dict[int, str]],
) -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch's older exporter, which needs no further package, is no longer new
        path = Path(folder) / "graph.onnx"
        torch.onnx.export(
            module.eval(),
            given,
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
        )
        return path.read_bytes()


def _in_eight_bits(graph: bytes) -> bytes:
    """The same with the weights of its matrix products in eight bits."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise ValueError("eight bits need onnxruntime: pip install 'nas-rlm[onnxruntime]'") from None
    with tempfile.TemporaryDirectory() as folder:
        before, after = (Path(folder) / name for name in ("before.onnx", "after.onnx"))
        before.write_bytes(graph)
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)  # advice of onnxruntime's, of no use here
        try:
            quantize_dynamic(before, after, weight_type=QuantType.QInt8, per_channel=True)
        finally:
            logging.disable(level)
        return after.read_bytes()


def _normed(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * norm.weight


def _fed(layer: EncoderLayer | DecoderLayer, x: Tensor) -> Tensor:
    up = layer.feed.up(_normed(layer.norm_feed, x))
    y: Tensor = x + layer.feed.down(nn.functional.gelu(up, approximate="tanh"))
    return y


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.matmul((torch.matmul(q * HEAD**-0.5, k.transpose(2, 3)) + mask).softmax(-1), v)


def _turned(x: Tensor) -> Tensor:
    """Each head's halves turned by the angles of their positions."""
    frequency = 1.0 / 10000 ** (torch.arange(0, HEAD, 2) / HEAD)
    angle = torch.arange(x.shape[2])[:, None] * frequency[None]
    cos, sin = torch.cos(angle), torch.sin(angle)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _heads(projected: Tensor, parts: int) -> tuple[Tensor, ...]:
    b, t, width = projected.shape
    found: tuple[Tensor, ...] = (
        projected.view(b, t, parts, width // parts // HEAD, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
    )
    return found


def _through(layers: nn.ModuleList, x: Tensor, mask: Tensor) -> Tensor:
    """States after layers of an encoder."""
    b, t, _ = x.shape
    for layer in cast(Sequence[EncoderLayer], layers):
        q, k, v = _heads(layer.attention.qkv(_normed(layer.norm_attention, x)), 3)
        seen = _attended(_turned(q), _turned(k), v, mask)
        x = _fed(layer, x + layer.attention.out(seen.transpose(1, 2).reshape(b, t, -1)))
    return x


def _remembered(network: Network, x: Tensor, filled: Tensor) -> tuple[Tensor, ...]:
    """Keys and values of each decoder layer, and the mask of what only fills up."""
    memory = _normed(network.norm_memory, x)
    found: list[Tensor] = []
    for one in cast(Sequence[DecoderLayer], network.decoder):
        found += _heads(one.cross.key_value(memory), 2)
    return (*found, BLOCKED * filled.float()[:, None, None, :])


class _Reader(nn.Module):
    """States of statements, each read by itself."""

    def __init__(self, encoder: StatementEncoder, pieces: nn.Module) -> None:
        super().__init__()
        self.encoder, self.pieces = encoder, pieces

    def forward(self, ids: Tensor) -> Tensor:
        filled = ids == PAD
        x = _through(self.encoder.layers, self.pieces(ids), BLOCKED * filled.float()[:, None, None, :])
        whole: Tensor = HALF * (x * (~filled).float()[:, :, None]).sum(1)
        return whole


class _StatementsEncoder(nn.Module):
    """Keys and values of each decoder layer, and the padding's mask, from statements' states and names."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, states: Tensor, names: Tensor, filled: Tensor, sources: Tensor) -> tuple[Tensor, ...]:
        net, special = self.network, self.network.config.special_heads
        place = torch.arange(states.shape[1])
        beside = (place[:, None] - place[None]).abs() <= 1
        near = sources | sources.transpose(1, 2) | beside[None]
        every = ~filled[:, None, :] | torch.zeros_like(near)
        heads = [every] * (net.config.size - special) + [every & near] * special
        known = net.pieces(names) * (names != PAD).float()[:, :, :, None]
        x = states + cast(nn.Linear, net.names)(torch.cat([known[:, :, 0], known.sum(2)], -1))
        x = _through(net.encoder, x, BLOCKED * (~torch.stack(heads, 1)).float())
        return _remembered(net, x, filled)


class _Encoder(nn.Module):
    """Keys and values of each decoder layer, and the padding's mask; heads see under masks of all pairs."""

    ends_statement: Tensor
    ends_scope: Tensor
    named: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        kinds = {"ends_statement": ENDS_STATEMENT, "ends_scope": ENDS_SCOPE, "named": IDENTIFIER}
        for name, kind in kinds.items():  # of each piece, since ONNX of this age has no bits
            self.register_buffer(name, (network.kinds & kind) > 0)

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        x = _through(self.network.encoder, self.network.pieces(ids), self._mask(ids))
        return _remembered(self.network, x, ids == PAD)

    def _mask(self, ids: Tensor) -> Tensor:
        """See `nas_rlm.model.network.Sight`."""
        net, special = self.network, self.network.config.special_heads
        t = ids.shape[1]
        place = torch.arange(t)
        itself = place[:, None] == place[None]
        visible = (ids != PAD)[:, None, :] | itself[None]
        ends = self.ends_statement[ids].long()
        statement = ends.cumsum(1) - ends
        scope = self.ends_scope[ids].long().cumsum(1)
        name = torch.where(self.named[ids], ids + scope * net.config.vocab_size, -1 - place[None])
        near = (statement[:, :, None] == statement[:, None, :]) & visible
        same = name[:, :, None] == name[:, None, :]
        heads = [visible] * (net.config.size - 2 * special) + [near] * special + [same] * special
        return BLOCKED * (~torch.stack(heads, 1)).float()


class _Decoder(nn.Module):
    """Logits of the digit after those written, which are read anew: they are few."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, digits: Tensor, *memory: Tensor) -> Tensor:
        net, padding = self.network, memory[-1]
        rows, t = digits.shape
        b = padding.shape[0]
        x = net.tokens(digits)
        place = torch.arange(t)
        causal = BLOCKED * (place[None] > place[:, None]).float()
        for i, layer in enumerate(cast(Sequence[DecoderLayer], net.decoder)):
            q, k, v = _heads(layer.attention.qkv(_normed(layer.norm_attention, x)), 3)
            own = _attended(_turned(q), _turned(k), v, causal)
            x = x + layer.attention.out(own.transpose(1, 2).reshape(rows, t, -1))
            asked = layer.cross.query(_normed(layer.norm_cross, x)).view(b, -1, net.config.size, HEAD)
            told = _attended(asked.transpose(1, 2), memory[2 * i], memory[2 * i + 1], padding)
            x = _fed(layer, x + layer.cross.out(told.transpose(1, 2).reshape(rows, t, -1)))
        logits: Tensor = net.digits(_normed(cast(Any, net.norm_out), x[:, -1]))
        return logits
