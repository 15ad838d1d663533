"""Export of a model's network as ONNX graphs, to predict without torch; see `nas_rlm.model.onnx_runtime`."""

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
from nas_rlm.files import check_new_directory, write_bytes, write_text
from nas_rlm.model.attention import MASKED_SCORE
from nas_rlm.model.checkpoint import AnyTokenizer, Temperatures, TrainedOn, objective_temperatures
from nas_rlm.model.config import HEAD_WIDTH
from nas_rlm.model.layers import DecoderLayer, EncoderLayer
from nas_rlm.model.network import Network
from nas_rlm.model.onnx_runtime import (
    CONFIG_FILE,
    DECODER_FILE,
    ENCODER_FILE,
    STATEMENT_ENCODER_FILE,
    TOKENIZER_FILE,
)
from nas_rlm.model.statement_encoder import STATEMENT_POOLING_SCALE, StatementEncoder
from nas_rlm.text import Tokenizer
from nas_rlm.text.tokenizer import ENDS_SCOPE, ENDS_STATEMENT, IDENTIFIER, PAD
from nas_rlm.utils.extras import require

OPSET = 17


class Exportable(Protocol):
    """A model that can be exported, such as `nas_rlm.RLM`."""

    network: Network
    tokenizer: AnyTokenizer
    trained_on: Mapping[str, TrainedOn]
    temperatures: Temperatures
    maximised: tuple[str, ...]


def export_model(rlm: Exportable, directory: str | os.PathLike[str], int8: bool = False) -> None:
    """Export a model's network as ONNX; its surrogates are not exported.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from nas_rlm import RLM
        >>> with TemporaryDirectory() as directory:
        ...     export_model(RLM.load("nas-fast"), directory)

    Args:
        rlm: model without a frozen encoder.
        directory: new or empty directory.
        int8: quantize the weights of matrix products to 8 bits, which halves the time of predictions on CPUs
            with 8-bit instructions.

    Raises:
        ValueError: the model has a frozen encoder, or was fitted to texts, the directory is not empty, or
            int8 needs onnxruntime.
    """
    if int8:
        require("onnxruntime", "a model in int8")
    config = rlm.network.config
    if not isinstance(rlm.tokenizer, Tokenizer):
        raise ValueError(
            f"the model has the frozen encoder {config.encoder}: expected a model with its own encoder"
        )
    if config.reads_any_text:
        raise ValueError(
            "the model was fitted to texts: expected one of networks, since only these are exported"
        )
    target = Path(directory)
    check_new_directory(target)
    graphs = _export_graphs(rlm.network)
    files = {name: _quantize(content) if int8 else content for name, content in graphs.items()}
    files[TOKENIZER_FILE] = rlm.tokenizer.proto
    saved = {
        "package": f"nas-rlm {__version__}",
        "objectives": config.objectives,
        "maximised": rlm.maximised,
        "max_length": config.max_length,
        "exponent_digits": config.exponent_digits,
        "mantissa_digits": config.mantissa_digits,
        "trained_on": {space: entry.objectives for space, entry in rlm.trained_on.items()},
        "temperatures": {
            space: objective_temperatures(rlm.temperatures, space, config.objectives)
            for space in ("", *rlm.trained_on)
        },
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    for name, content in files.items():
        write_bytes(target / name, content)
    write_text(target / CONFIG_FILE, json.dumps(saved, indent=1) + "\n")


def _export_graphs(network: Network) -> dict[str, bytes]:
    """The ONNX graphs of a network, serialized, by file name."""
    ids = torch.tensor([[1, 2, 3, PAD], [1, 2, 3, 4]])
    digits = torch.tensor([[0, 1], [2, 3], [0, 2], [1, 1]])
    memory_names = [f"{kind}{i}" for i in range(len(network.decoder)) for kind in ("keys", "values")]
    text_axes = {0: "texts", 1: "tokens"}
    memory_axes = {
        **{name: {0: "texts", 2: "tokens"} for name in memory_names},
        "padding": {0: "texts", 3: "tokens"},
    }
    graphs = {}
    encoder: nn.Module
    inputs: tuple[Tensor, ...]
    if network.statement_encoder:
        statement_encoder = _StatementEncoder(network.statement_encoder, network.pieces)
        axes = {"ids": {0: "statements", 1: "pieces"}, "states": {0: "statements"}}
        graphs[STATEMENT_ENCODER_FILE] = _export(statement_encoder, (ids,), ["ids"], ["states"], axes)
        encoder = _EncoderOverStatements(network)
        states, sources = torch.zeros(2, 4, network.config.width), torch.zeros(2, 4, 4, dtype=torch.bool)
        inputs = states, ids[:, :, None], ids == PAD, sources
        input_axes = {
            "states": text_axes,
            "names": {**text_axes, 2: "names"},
            "is_padding": text_axes,
            "sources": {**text_axes, 2: "tokens"},
        }
    else:
        encoder, inputs, input_axes = _EncoderOverTokens(network), (ids,), {"ids": text_axes}
    with torch.no_grad():
        memory = encoder(*inputs)
    graphs[ENCODER_FILE] = _export(
        encoder, inputs, list(input_axes), [*memory_names, "padding"], {**input_axes, **memory_axes}
    )
    graphs[DECODER_FILE] = _export(
        _Decoder(network),
        (digits, *memory),
        ["digits", *memory_names, "padding"],
        ["logits"],
        {"digits": {0: "decodings", 1: "written"}, **memory_axes, "logits": {0: "decodings"}},
    )
    return graphs


def _export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    input_names: Sequence[str],
    output_names: Sequence[str],
    axes: dict[str, dict[int, str]],
) -> bytes:
    """A module as a serialized ONNX graph.

    Args:
        module: torch module.
        inputs: example inputs.
        input_names: names of the inputs of the graph.
        output_names: names of the outputs of the graph.
        axes: for each input and output, the names of its dynamic axes by their indices.
    """
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the TorchScript exporter is deprecated, but needs no other package
        path = Path(directory) / "graph.onnx"
        torch.onnx.export(
            module.eval(),
            inputs,
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=list(input_names),
            output_names=list(output_names),
            dynamic_axes=axes,
        )
        return path.read_bytes()


def _quantize(graph: bytes) -> bytes:
    """A serialized graph with the weights of its matrix products in 8 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as directory:
        before, after = (Path(directory) / name for name in ("before.onnx", "after.onnx"))
        before.write_bytes(graph)
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)  # onnxruntime recommends a preprocessing that changes nothing here
        try:
            quantize_dynamic(before, after, weight_type=QuantType.QInt8, per_channel=True)
        finally:
            logging.disable(level)
        return after.read_bytes()


def _rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    """RMS normalization written in basic operators."""
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * norm.weight


def _feed_forward(layer: EncoderLayer | DecoderLayer, x: Tensor) -> Tensor:
    """The feed-forward block of a layer, with its residual connection."""
    up = layer.feed.up(_rms_norm(layer.norm_feed, x))
    y: Tensor = x + layer.feed.down(nn.functional.gelu(up, approximate="tanh"))
    return y


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention written in basic operators; see `nas_rlm.model.attention.attend`."""
    return torch.matmul((torch.matmul(q * HEAD_WIDTH**-0.5, k.transpose(2, 3)) + mask).softmax(-1), v)


def _rotate(x: Tensor) -> Tensor:
    """Rotary position embedding of [B, H, t, HEAD_WIDTH]; see `nas_rlm.model.attention.rotate`."""
    frequency = 1.0 / 10000 ** (torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    angle = torch.arange(x.shape[2])[:, None] * frequency[None]
    cos, sin = torch.cos(angle), torch.sin(angle)
    a, b = x[..., : HEAD_WIDTH // 2], x[..., HEAD_WIDTH // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _split_heads(projected: Tensor, num_tensors: int) -> tuple[Tensor, ...]:
    """Tensors [B, H, t, HEAD_WIDTH], such as queries, keys and values, from a joint projection."""
    b, t, width = projected.shape
    shape = b, t, num_tensors, width // num_tensors // HEAD_WIDTH, HEAD_WIDTH
    tensors: tuple[Tensor, ...] = projected.view(shape).permute(2, 0, 3, 1, 4).unbind(0)
    return tensors


def _encoder_layers(layers: nn.ModuleList, x: Tensor, mask: Tensor) -> Tensor:
    """States [B, t, width] after encoder layers, with an additive mask that is broadcast to [B, H, t, t]."""
    b, t, _ = x.shape
    for layer in cast(Sequence[EncoderLayer], layers):
        q, k, v = _split_heads(layer.attention.qkv(_rms_norm(layer.norm_attention, x)), 3)
        attended = _attention(_rotate(q), _rotate(k), v, mask)
        x = _feed_forward(layer, x + layer.attention.out(attended.transpose(1, 2).reshape(b, t, -1)))
    return x


def _memory(network: Network, x: Tensor, is_padding: Tensor) -> tuple[Tensor, ...]:
    """Cross-attention keys and values of each decoder layer, and the additive padding mask."""
    normed = _rms_norm(network.norm_memory, x)
    key_values: list[Tensor] = []
    for layer in cast(Sequence[DecoderLayer], network.decoder):
        key_values += _split_heads(layer.cross.key_value(normed), 2)
    return (*key_values, MASKED_SCORE * is_padding.float()[:, None, None, :])


class _StatementEncoder(nn.Module):
    """A module that returns the states of statements, each encoded by itself."""

    def __init__(self, encoder: StatementEncoder, pieces: nn.Module) -> None:
        super().__init__()
        self.encoder, self.pieces = encoder, pieces

    def forward(self, ids: Tensor) -> Tensor:
        """Return the states [S, width] of padded statements [S, T]."""
        is_padding = ids == PAD
        mask = MASKED_SCORE * is_padding.float()[:, None, None, :]
        x = _encoder_layers(self.encoder.layers, self.pieces(ids), mask)
        pooled: Tensor = STATEMENT_POOLING_SCALE * (x * (~is_padding).float()[:, :, None]).sum(1)
        return pooled


class _EncoderOverStatements(nn.Module):
    """A module from the states and names of statements to the outputs of `_memory`."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, states: Tensor, names: Tensor, is_padding: Tensor, sources: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the outputs of `_memory` for texts of S statements.

        Args:
            states: states of the statements [B, S, width].
            names: int64 [B, S, N], see `nas_rlm.text.statements.Statements`.
            is_padding: bool [B, S].
            sources: bool [B, S, S], see `nas_rlm.text.statements.Statements`.
        """
        net, special_heads = self.network, self.network.config.special_heads
        position = torch.arange(states.shape[1])
        is_adjacent = (position[:, None] - position[None]).abs() <= 1
        is_near = sources | sources.transpose(1, 2) | is_adjacent[None]
        is_visible = ~is_padding[:, None, :] | torch.zeros_like(is_near)
        heads = [is_visible] * (net.config.size - special_heads) + [is_visible & is_near] * special_heads
        embedded = net.pieces(names) * (names != PAD).float()[:, :, :, None]
        x = states + cast(nn.Linear, net.names)(torch.cat([embedded[:, :, 0], embedded.sum(2)], -1))
        x = _encoder_layers(net.encoder, x, MASKED_SCORE * (~torch.stack(heads, 1)).float())
        return _memory(net, x, is_padding)


class _EncoderOverTokens(nn.Module):
    """A module from tokens to the outputs of `_memory`; attention masks are dense."""

    ends_statement: Tensor
    ends_scope: Tensor
    is_name: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        kinds = {"ends_statement": ENDS_STATEMENT, "ends_scope": ENDS_SCOPE, "is_name": IDENTIFIER}
        for name, kind in kinds.items():  # one table for each bit: this opset has no bitwise operators
            self.register_buffer(name, (network.kinds & kind) > 0)

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of `_memory` for padded texts, token ids [B, T]."""
        x = _encoder_layers(self.network.encoder, self.network.pieces(ids), self._mask(ids))
        return _memory(self.network, x, ids == PAD)

    def _mask(self, ids: Tensor) -> Tensor:
        """Additive mask of each head, [B, H, T, T]; see `nas_rlm.model.attention.AttentionMask`."""
        net, special_heads = self.network, self.network.config.special_heads
        position = torch.arange(ids.shape[1])
        is_same_token = position[:, None] == position[None]
        is_visible = (ids != PAD)[:, None, :] | is_same_token[None]
        ends = self.ends_statement[ids].long()
        statement = ends.cumsum(1) - ends
        scope = self.ends_scope[ids].long().cumsum(1)
        name = torch.where(self.is_name[ids], ids + scope * net.config.vocab_size, -1 - position[None])
        in_statement = (statement[:, :, None] == statement[:, None, :]) & is_visible
        has_same_name = name[:, :, None] == name[:, None, :]
        heads = (
            [is_visible] * (net.config.size - 2 * special_heads)
            + [in_statement] * special_heads
            + [has_same_name] * special_heads
        )
        return MASKED_SCORE * (~torch.stack(heads, 1)).float()


class _Decoder(nn.Module):
    """A module that returns the logits of the next digit; it has no cache, since numbers are short."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, digits: Tensor, *memory: Tensor) -> Tensor:
        """Return logits [rows, NUM_DIGIT_TOKENS] of decoder tokens [rows, t] for the outputs of `_memory`."""
        net, padding = self.network, memory[-1]
        rows, t = digits.shape
        b = padding.shape[0]
        x = net.tokens(digits)
        position = torch.arange(t)
        causal = MASKED_SCORE * (position[None] > position[:, None]).float()
        for i, layer in enumerate(cast(Sequence[DecoderLayer], net.decoder)):
            q, k, v = _split_heads(layer.attention.qkv(_rms_norm(layer.norm_attention, x)), 3)
            attended = _attention(_rotate(q), _rotate(k), v, causal)
            x = x + layer.attention.out(attended.transpose(1, 2).reshape(rows, t, -1))
            queries = layer.cross.query(_rms_norm(layer.norm_cross, x)).view(
                b, -1, net.config.size, HEAD_WIDTH
            )
            attended = _attention(queries.transpose(1, 2), memory[2 * i], memory[2 * i + 1], padding)
            x = _feed_forward(layer, x + layer.cross.out(attended.transpose(1, 2).reshape(rows, t, -1)))
        logits: Tensor = net.digits(_rms_norm(cast(Any, net.norm_out), x[:, -1]))
        return logits
