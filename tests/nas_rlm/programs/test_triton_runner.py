import json
import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from nas_rlm.cli import main
from nas_rlm.data import read
from nas_rlm.programs import triton_runner as kernels
from nas_rlm.programs.triton_runner import (
    Failure,
    Kernel,
    Latency,
    Plan,
    measure,
    measure_kernels,
    read_kernelbook,
)

pytestmark = pytest.mark.usefixtures("quick_processes")
CHECK = Plan(windows=2, seconds_per_window=0.01, interpret=True)
MODULE = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, width, start=1.0):
        super().__init__()
        self.scale = nn.Parameter(start + torch.arange(width).float())
        self.shift = nn.Parameter(torch.randn(3, width))

    def forward(self, x):
        return torch.tanh(x * self.scale + self.shift)


def get_inputs():
    return [torch.rand(3, 8)]


def get_init_inputs():
    return [[8], {"start": 2.0}]
"""
# Of the shape that KernelBook's programs have; TAKEN is the order of arguments.
PROGRAM = """
import torch
import triton
import triton.language as tl
from torch import nn
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.runtime.triton_heuristics import grid
from torch._inductor.runtime.triton_helpers import libdevice

assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda


@triton.jit
def scaled(x_ptr, scale_ptr, shift_ptr, out_ptr, xnumel, XBLOCK: tl.constexpr):
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    inside = at < xnumel
    x, shift = tl.load(x_ptr + at, inside), tl.load(shift_ptr + at, inside)
    scale = tl.load(scale_ptr + at % 8, inside)
    tl.store(out_ptr + at, libdevice.tanh(x * scale + shift), inside)


def call(args):
    TAKEN = args
    args.clear()
    assert_size_stride(scale, (8,), (1,))
    assert_size_stride(x, (3, 8), (8, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        out = empty_strided_cuda((3, 8), (8, 1), torch.float32)
        get_raw_stream(0)
        scaled[grid(24)](x, scale, shift, out, 24, XBLOCK=16, num_warps=1)
    return (out,)
"""
AS_MODULE = """

class ScaledNew(nn.Module):
    def __init__(self, width, start=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(width))
        self.shift = nn.Parameter(torch.zeros(3, width))

    def forward(self, x):
        return call([self.scale, self.shift, x])[0]
"""
WEIGHTS_FIRST, INPUTS_FIRST, INPUTS_BETWEEN = (
    PROGRAM.replace("TAKEN", taken) for taken in ("scale, shift, x", "x, scale, shift", "scale, x, shift")
)


@pytest.mark.parametrize(
    ("source", "order"),
    [
        (WEIGHTS_FIRST, "parameters, inputs"),
        (INPUTS_FIRST, "inputs, parameters"),
        (INPUTS_BETWEEN, "inputs after 1 parameters"),
        (WEIGHTS_FIRST + AS_MODULE, "ScaledNew"),
    ],
)
def test_argument_orders_are_tried_until_the_outputs_match(source, order):
    result = measure(Kernel(source, MODULE, "Scaled"), CHECK)
    assert isinstance(result, Latency), result
    assert (result.order, result.matches) == (order, True)
    assert result.median > 0 and result.runs >= 2


def test_different_outputs_are_reported():
    wrong = WEIGHTS_FIRST.replace("libdevice.tanh(x * scale + shift)", "x * scale + shift")
    result = measure(Kernel(wrong, MODULE, "Scaled"), CHECK)
    assert isinstance(result, Latency) and result.matches is False


def test_a_function_is_called_with_the_inputs_of_its_file():
    source = PROGRAM.replace("TAKEN", "scale, shift, x") + (
        "\ndef run(x):\n    return call([torch.ones(8), torch.zeros(3, 8), x])\n"
        "\ndef get_inputs():\n    return [torch.rand(3, 8)]\n"
    )
    result = measure(Kernel(source, "", "run"), CHECK)
    assert isinstance(result, Latency) and (result.order, result.matches) == ("inputs", None)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Kernel(WEIGHTS_FIRST.replace("grid(24)", "no"), MODULE, "Scaled"), "name 'no' is not defined"),
        (
            Kernel(WEIGHTS_FIRST.replace("(3, 8), (8, 1))", "(3, 9), (9, 1))"), MODULE, "Scaled"),
            "expected size",
        ),
        (Kernel("x =", MODULE, "Scaled"), "invalid syntax"),
        (Kernel(WEIGHTS_FIRST, MODULE, "Other"), "there is no torch module 'Other'"),
        (Kernel(WEIGHTS_FIRST, "", ""), "there is no get_inputs()"),
        (
            Kernel("x = 1", "def get_inputs():\n    return []", ""),
            "there is no call(args), and no torch module",
        ),
        (Kernel("import os\nos._exit(3)", MODULE, "Scaled"), "ended with code 3"),
        (Kernel("def get_inputs():\n    return []", "", ""), "nothing to call"),
    ],
)
def test_errors_of_kernels_are_reported(kernel, message):
    result = measure(kernel, CHECK)
    assert isinstance(result, Failure) and message in result.error


@pytest.mark.long
def test_measured_kernels_are_not_measured_again(tmp_path, monkeypatch, capsys):
    module, kernel = tmp_path / "module.py", tmp_path / "kernel.py"
    module.write_text(MODULE)
    kernel.write_text("import triton\n@triton.jit\ndef f(x): pass\n")
    command = ["measure", "triton", "--interpret", "--seconds", "0.01", "--windows", "1"]
    out = tmp_path / "found.parquet"
    assert main([*command, str(module), "--out", str(out)]) == 0
    assert "1 kernel with latency" in capsys.readouterr().out
    (row,) = read(out).rows
    assert "@triton.jit" in row.input and "ARGUMENTS" in row.input
    details = json.loads(row.metainformation)
    assert details["matches"] is True and details["order"] == "as declared"
    assert row.targets["latency/triton-interpreter"] > 0

    def refuse(*_):
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(kernels, "measure", refuse)
        assert main([*command, str(module), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main([*command, str(module), str(kernel), "--out", str(out)]) == 0
    assert "1 cannot be measured:" in capsys.readouterr().out
    assert [bool(row.targets) for row in read(out).rows] == [True, False]


def test_without_a_gpu_no_table_is_written(tmp_path, monkeypatch, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="there is no GPU: --interpret"):
        measure_kernels({"one": Kernel(WEIGHTS_FIRST, MODULE, "Scaled")}, tmp_path / "found.parquet")
    assert not (tmp_path / "found.parquet").exists()


def test_pairs_of_kernelbook_are_read(tmp_path):
    records = [
        {"entry_point": "Scaled", "python_code": MODULE, "triton_code": WEIGHTS_FIRST, "uuid": 7, "stars": 1},
        {"entry_point": "Scaled", "python_code": MODULE, "triton_code": INPUTS_FIRST, "uuid": 9, "stars": 2},
    ]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "pairs.parquet")
    (tmp_path / "pairs.json").write_text(json.dumps(records))
    for name in ("pairs.parquet", "pairs.json"):
        assert read_kernelbook(tmp_path / name) == {
            "7": Kernel(WEIGHTS_FIRST, MODULE, "Scaled"),
            "9": Kernel(INPUTS_FIRST, MODULE, "Scaled"),
        }
    result = measure_kernels(read_kernelbook(tmp_path / "pairs.json"), tmp_path / "found.parquet", CHECK)
    assert [row.identifier for row in result.rows] == ["7", "9"]
    assert all(row.targets for row in result.rows)


@pytest.mark.parametrize("content", ["{", "[]", "[1]", '[{"python_code": ""}]'])
def test_files_without_pairs_are_refused(tmp_path, content):
    (tmp_path / "pairs.json").write_text(content)
    with pytest.raises(ValueError, match="has no pairs"):
        read_kernelbook(tmp_path / "pairs.json")


def test_pairs_that_are_not_valid_are_left_out(tmp_path):
    pair = {"entry_point": "Scaled", "python_code": MODULE, "triton_code": WEIGHTS_FIRST, "uuid": "a"}
    changes = {"uuid": "b", "triton_code": 5}, {"uuid": "c", "python_code": "\ud800"}, {}
    empty = {"uuid": "d", "triton_code": None, "python_code": ""}
    records = [
        pair,
        *(pair | change for change in (*changes, empty)),
        {"uuid": "e"},
        None,
        pair | {"uuid": "f"},
    ]
    (tmp_path / "pairs.json").write_text(json.dumps(records))
    with pytest.warns(UserWarning, match=r"^6 entries are not valid .*: pair 1: triton_code is 5"):
        assert list(read_kernelbook(tmp_path / "pairs.json")) == ["a", "f"]


def test_a_kernel_that_hangs_fails():
    endless = Kernel("def get_inputs():\n    return []\n\n\ndef call(args):\n    while True:\n        pass\n")
    result = measure(endless, Plan(windows=1, seconds_per_window=0.01, interpret=True, timeout=8))
    assert result == Failure("no answer within 8 seconds")
    with pytest.raises(ValueError, match="timeout is 0\\.5, expected more than a window's 1 seconds"):
        Plan(timeout=0.5)


class Threads:
    """Workers in threads of the test: two must load at once, and those that time a kernel are counted."""

    def __init__(self, failing=""):
        self.failing = failing
        self.timing, self.killed = Counter(), []
        self.both_load = threading.Barrier(2)

    def connect(self, module, timeout):
        return Thread(self)


class Thread:
    def __init__(self, threads):
        self.threads, self.process = threads, self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def kill(self):
        self.threads.killed.append(self)
        self.threads.both_load.abort()

    def open(self, interpret):
        return {"device": "gpu"}

    def request(self, method, content=None, **_):
        if method == "load":
            source = json.loads(content)["source"]
            if source == self.threads.failing:
                while self.threads.both_load.n_waiting < 1:
                    time.sleep(0.01)
                raise KeyError(source)
            self.threads.both_load.wait(10)
            return {"order": source, "matches": None}
        self.threads.timing["now"] += 1
        self.threads.timing["most"] = max(self.threads.timing["most"], self.threads.timing["now"])
        time.sleep(0.01)
        self.threads.timing["now"] -= 1
        return {"time": 1.0, "runs": 20}


def test_kernels_load_at_once_and_are_timed_one_after_another(tmp_path, monkeypatch):
    threads = Threads()
    monkeypatch.setattr(kernels, "Connection", threads.connect)
    sources = {name: Kernel(name) for name in "cabd"}
    table = measure_kernels(sources, tmp_path / "found.parquet", CHECK, jobs=2)
    assert [row.identifier for row in table.rows] == list("cabd")
    assert [json.loads(row.metainformation)["order"] for row in table.rows] == list("cabd")
    assert threads.timing["most"] == 1


def test_an_error_stops_the_workers_that_run(tmp_path, monkeypatch):
    threads = Threads(failing="a")
    monkeypatch.setattr(kernels, "Connection", threads.connect)
    with pytest.raises(KeyError):
        measure_kernels({"a": Kernel("a"), "b": Kernel("b")}, tmp_path / "found.parquet", CHECK, jobs=2)
    assert len(threads.killed) == 1
