import json
import textwrap
from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="needs triton")

from nas_rlm.cli import main
from nas_rlm.data import read
from nas_rlm.programs.triton_runner import Failure, Kernel, Latency, Plan, measure

pytestmark = pytest.mark.usefixtures("quick_processes")
CHECK = Plan(windows=1, seconds_per_window=0.001, interpret=True)
MODULE = """
import torch
from torch import nn


class Combined(nn.Module):
    def forward(self, a, b):
        x, y = a.float(), b.float()
        return (EXPECTED).to(a.dtype)


def get_inputs():
    return [torch.randint(1, 5, (16, 16)).to(torch.KIND), torch.randint(-3, 4, (16, 16)).to(torch.KIND)]
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def combine(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
BODY


class CombinedNew(nn.Module):
    def forward(self, a, b):
        c = torch.zeros_like(a)
        combine[(1,)](a, b, c, N=16)
        return c
"""
EXPRESSIONS = {  # of the kernel and, in float32, of the module
    "products": [
        ("tl.dot(x, y)", "x @ y"),
        ("tl.dot(x, y, acc=tl.full((N, N), 0.5, tl.float32))", "x @ y + 0.5"),
        ("tl.fma(x, y, x)", "x * y + x"),
    ],
    "elements": [
        ("x + y", "x + y"),
        ("x * y - 2.5", "x * y - 2.5"),
        ("y / x", "y / x"),
        ("-y", "-y"),
        ("tl.maximum(x, y)", "torch.maximum(x, y)"),
        ("tl.where((y > 0.0) & (x < 4.0), y, x)", "torch.where((y > 0) & (x < 4), y, x)"),
        ("tl.abs(y)", "y.abs()"),
        ("y.to(tl.int32) + 1", "y + 1"),
        ("tl.exp(y.to(tl.float32))", "y.exp()"),
    ],
    "reductions": [
        ("tl.sum(y, 1)[:, None] + x", "y.sum(1, keepdim=True) + x"),
        ("tl.max(y, 1)[:, None] + x", "y.amax(1, keepdim=True) + x"),
        ("tl.cumsum(y, 1)", "y.cumsum(1)"),
    ],
}


def kernel(body, expected, kind):
    return Kernel(
        KERNEL.replace("BODY", textwrap.indent(body, "    ")),
        MODULE.replace("EXPECTED", expected).replace("KIND", kind),
        "Combined",
    )


@pytest.mark.parametrize("group", EXPRESSIONS)
def test_arithmetic_of_bfloat16_matches(group):
    stores = [f"tl.store(c + {256 * k} + at, {e})" for k, (e, _) in enumerate(EXPRESSIONS[group])]
    expected = f"torch.stack([{', '.join(expected for _, expected in EXPRESSIONS[group])}])"
    made = kernel("\n".join(stores), expected, "bfloat16")
    source = made.source.replace("torch.zeros_like(a)", f"a.new_zeros({len(stores)}, 16, 16)")
    result = measure(replace(made, source=source), CHECK)
    assert isinstance(result, Latency) and result.matches


def test_a_wrong_kernel_is_still_found():
    result = measure(kernel("tl.store(c + at, x - y)", "x + y", "bfloat16"), CHECK)
    assert isinstance(result, Latency) and result.matches is False


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
def test_atomic_additions_match_or_fail_with_a_reason(kind):
    body = "\n".join(
        [
            "tl.atomic_add(c + at, x)",
            "tl.atomic_add(c + at, y, mask=x > 2.0)",
            "tl.atomic_add(c + 0 * at, x + 0.5 - x, mask=at < 16)",  # all at one address
            "tl.store(c + 16 + at, tl.atomic_add(a + at, y), mask=at < 16)",  # the previous values
        ]
    )
    corner = "8.0 * torch.eye(16)[:, :1] @ torch.eye(16)[:1]"
    is_second_row = "torch.arange(256).view(16, 16) // 16 == 1"
    expected = f"torch.where({is_second_row}, x.roll(1, 0), x + y * (x > 2) + {corner})"
    result = measure(kernel(body, expected, kind), CHECK)
    if isinstance(result, Failure):  # older versions of Triton refuse bfloat16
        assert kind == "bfloat16" and "does not support bf16" in result.error
    else:
        assert result.matches


def test_a_failing_kernel_keeps_the_others(tmp_path, capsys):
    bodies = {"right": "tl.store(c + at, x + y)", "failing": "tl.store(c + at, x + nothing)"}
    pairs = [
        {"uuid": name, "entry_point": "Combined", "triton_code": made.source, "python_code": made.module}
        for name, body in (*bodies.items(), ("ends", "tl.store(c + at, x + y)"))
        for made in [kernel(body, "x + y", "bfloat16")]
    ]
    pairs[2]["triton_code"] = "import os\nos._exit(3)\n"
    (tmp_path / "pairs.json").write_text(json.dumps([*pairs, pairs[0] | {"uuid": "last"}]))
    out = tmp_path / "kernels.parquet"
    command = ["measure", "triton", "--pairs", str(tmp_path / "pairs.json"), "--interpret", "--windows", "1"]
    assert main([*command, "--seconds", "0.001", "--out", str(out)]) == 0
    details = {row.identifier: json.loads(row.metainformation) for row in read(out).rows}
    assert [details[name].get("matches") for name in ("right", "failing", "ends", "last")] == [
        *(True, None, None, True),
    ]
    assert details["failing"]["error"] and details["ends"]["error"]
    assert "2 cannot be measured:\n  failing: " in capsys.readouterr().out


def test_comparisons_of_scalars_are_masks():
    body = "\n".join(
        [
            "row = tl.program_id(0)",
            "for k in range(0, 2):",
            "    mask = (at < 200) & (row + k < 1)",
            "    tl.store(c + at, tl.load(a + at, mask=mask, other=0.0) + y, mask=mask)",
        ]
    )
    expected = "(x + y) * (torch.arange(256).view(16, 16) < 200)"
    result = measure(kernel(body, expected, "float32"), CHECK)
    assert isinstance(result, Latency) and result.matches
