"""Networks to measure, and the command of a fake worker."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import search_spaces

SPACE = search_spaces.get("nasbench201")
FAKE_WORKER = Path(__file__).parent / "fake_worker.py"


def cells(count: int, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    return [SPACE.sample(rng) for _ in range(count)]


def onnx_files(count: int) -> list[tuple[int, bytes]]:
    return [(i, SPACE.to_onnx(a, weights=True).SerializeToString()) for i, a in enumerate(cells(count))]


def fake_worker_command(log: Path, **behaviour: str) -> str:
    """A command for `python` that starts the fake worker, which writes its requests to a log."""
    arguments = " ".join(f"{name}={value}" for name, value in behaviour.items())
    return f"{sys.executable} {FAKE_WORKER} {log} {arguments}".strip()


def model_of(text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    """A model of a graph as ONNX text, with ones as float weights of these shapes."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    ones = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights.items()]
    model.graph.initializer.extend(ones)
    onnx.checker.check_model(model, full_check=True)
    return model


def encoder() -> onnx.ModelProto:
    """A text encoder: integers of two types, an attention mask, booleans and a scalar; two outputs."""
    return model_of(
        """
        g (
            int64[batch,length] input_ids, int32[batch,length] segments,
            int64[batch,length] attention_mask, bool[batch,length] keep, float scale
        ) => (float[batch,length,8] hidden, int64[batch,length] best)
        <float one = {1}, int64[1] axis = {2}>
        {
            segment_ids = Cast<to=7>(segments)
            a = Gather(words, input_ids)
            b = Gather<axis=0>(kinds, segment_ids)
            c = Add(a, b)
            mask = Cast<to=1>(attention_mask)
            bias = Sub(mask, one)
            wide_bias = Unsqueeze(bias, axis)
            d = Add(c, wide_bias)
            kept = Cast<to=1>(keep)
            wide_kept = Unsqueeze(kept, axis)
            e = Mul(d, wide_kept)
            hidden = Mul(e, scale)
            best = ArgMax<axis=2, keepdims=0>(hidden)
        }
        """,
        words=(50, 8),
        kinds=(2, 8),
    )
