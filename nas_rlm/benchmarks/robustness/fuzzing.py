"""Mutated ONNX files: whether reading them can crash, hang, or raise an unclear exception."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

import search_spaces
from nas_rlm.benchmarks.robustness.onnx_mutations import mutate
from nas_rlm.data.synthetic import graph_features
from nas_rlm.files import ASSETS
from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits
from nas_rlm.graph.onnx_graphs.loading import load
from nas_rlm.text import Tokenizer, from_onnx

SPACES = ("nasbench201", "nats_size", "fbnet", "ofa_mbv3", "two_path")
SPACE_WITH_WEIGHTS = "nats_size"  # whose network is small
OUTCOMES = ("read", "inconsistent", "refused", "crash", "hang", "traceback")
FAILURES = ("crash", "hang", "traceback")
MAX_MEMORY = 2 * 1024**3  # that a file may take
MAX_FUZZED_BYTES = 4 * 1024**2  # of a seed
MAX_REASON = 2000  # characters of the reason of an outcome
_HEAD = '<ir_version: 9, opset_import: ["": 21, "ai.onnx.ml": 3, "com.microsoft": 1, "own": 1]>'
_NEW_HEAD = f'<ir_version: 11, opset_import: ["": {min(24, onnx.defs.onnx_opset_version())}]>'
_MODELS = (
    # Arithmetic on shapes, Resize, Slice, Gather, Reshape
    "g (float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float[n, 8, a, b] y) <int64[1] two = {2},"
    " int64[1] i = {2}>"
    " { c = Conv <pads = [1, 1, 1, 1]> (x, k) s = Shape (c) h = Gather <axis = 0> (s, i) d = Mul (h,"
    " two)"
    " f = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> () r = Resize (c, , f) t = Concat <axis ="
    " 0> (d, two)"
    " y = Relu (r) }",
    "g (float[1, 8, 6, 6] x) => (float[1, 8, 12, 12] y, int64 e)"
    " <int64[1] z = {0}, int64[1] o = {1}, int64[1] t = {2}, int64[1] m = {-1}, int64[1] l = {10},"
    " int64[2] up = {12, 12}>"
    " { s = Shape (x) a = Slice (s, z, t) b = Concat <axis = 0> (a, up) r = Resize <mode ="
    ' "linear"> (x, , , b)'
    " v = Slice (r, z, t, o, o) q = Concat <axis = 1> (v, r) u = Slice (q, t, l, o) n = Concat <axis"
    " = 0> (a, m)"
    " p = Reshape (u, n) w = Expand (p, o) e = ReduceProd <keepdims = 0> (s) y = Reshape (w, b) }",
    "g (int64[2] x) => (float[a, b] y, int64[c] u) { z = Constant <value_int = 0> () e = Constant"
    " <value_int = 9> ()"
    " d = Constant <value_int = 2> () r = Range (z, e, d) k = Constant <value_ints = [2]> () u = Tile"
    " (r, k)"
    " v = OneHot (r, e, x) c = Cast <to = 1> (v) s = Shape (c) f = ConstantOfShape <value = float[1]"
    " {2.0}> (s)"
    " y = Add (c, f) }",
    # Recurrent layers
    "g (float[5, 1, 4] x, float[1, 16, 4] w, float[1, 16, 4] r) => (float[5, 1, 4] y)"
    " { o, p = LSTM <hidden_size = 4> (x, w, r) one = Constant <value_ints = [1]> () y = Squeeze (o,"
    " one) }",
    "g (float[5, 1, 4] x, float[2, 12, 4] w, float[2, 12, 4] r, float[1, 4, 8] v, float[1, 4, 4] s)"
    ' => (float[5, 1, 1, 4] y) { o, p = GRU <hidden_size = 4, direction = "bidirectional"> (x, w, r)'
    " t = Transpose <perm = [0, 2, 1, 3]> (o) k = Constant <value_ints = [0, 0, -1]> () q = Reshape"
    " (t, k)"
    " y = RNN <hidden_size = 4> (q, v, s) }",
    # Attention, with a branch
    "g (float[1, 4, 6] q, float[6, 12] w, bool b) => (float[1, 4, 4] y)"
    " { p = MatMul (q, w) u, v = Split <axis = 2, num_outputs = 2> (p) t = Transpose <perm = [0, 2,"
    " 1]> (v)"
    " m = MatMul (u, t) z = If (b) <then_branch = a () => (float[1, 4, 4] a1) { a1 = Softmax (m) },"
    " else_branch = e () => (float[1, 4, 4] e1) { e1 = Neg (m) }> y = Einsum <equation ="
    ' "bij,bjk->bik"> (z, m) }',
    # Loops
    "g (float[2, 3] x, int64 n) => (float[2, 3] y) { c = Constant <value = bool {1}> ()"
    " y = Loop (n, c, x) <body = b (int64 i, bool k, float[2, 3] a) => (bool k2, float[2, 3] a2)"
    " { k2 = Identity (k) a2 = Add (a, a) }> }",
    "g (float[2, 3] x) => (float[2, 3] y, float[r, 2, 3] z) { c = Constant <value = bool {1}> ()"
    " n = Constant <value_int = 5> () d = Constant <value_int = 3> ()"
    " y, z = Loop (n, c, x) <body = b (int64 i, bool k, float[2, 3] a) => (bool k2, float[2, 3] a2,"
    " float[2, 3] a3)"
    " { k2 = Less (i, d) a3 = If (k2) <then_branch = t () => (float[2, 3] t1) { t1 = Relu (a) },"
    " else_branch = e () => (float[2, 3] e1) { e1 = Neg (x) }> a2 = Add (a, a3) }> }",
    "g (float[4, 2] x, float[2] h) => (float[2] z, float[4, 2] y)"
    " { z, y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] s2, float[2]"
    " o)"
    " { s2 = Add (s, e) o = Relu (s2) }> (h, x) }",
    # Quantized operators
    "g (float[1, 3, 8, 8] x, int8[4, 3, 1, 1] k) => (float[1, 4, 8, 8] y)"
    " <float xs = {0.02}, uint8 xz = {128}, float ws = {0.01}, int8 wz = {0}>"
    " { q = QuantizeLinear (x, xs, xz) d = DequantizeLinear (q, xs, xz) w = DequantizeLinear (k, ws,"
    " wz)"
    " y = Conv (d, w) }",
    "g (uint8[1, 3, 8, 8] x, int8[4, 3, 3, 3] k, int8[4, 5] m, int8[5, 2] j) => (float[36, 2] y)"
    " <float xs = {0.02}, uint8 xz = {128}, float ws = {0.01}, int8 wz = {0}, int64[2] p = {-1, 4}>"
    " { c = QLinearConv (x, xs, xz, k, ws, wz, xs, xz) t = Transpose <perm = [0, 2, 3, 1]> (c)"
    " r = Reshape (t, p) l = QLinearMatMul (r, xs, xz, m, ws, wz, xs, xz) f = DequantizeLinear (l,"
    " xs, xz)"
    " q, s, z = DynamicQuantizeLinear (f) i = MatMulInteger (q, j, z) y = Cast <to = 1> (i) }",
    # Sequences, optional values, local functions
    "g (float[1, 4] x) => (float[1, 4] y) { s = SequenceConstruct (x, x) i = Constant <value_int = 0>"
    " ()"
    " a = SequenceAt (s, i) y = own.F <alpha = 0.5> (a) }"
    ' <domain: "own", opset_import: ["": 18]> F <alpha> (a) => (b) { c = LeakyRelu <alpha: float ='
    " @alpha> (a)"
    " b = Clip (c) }",
    "g (float[6, 4] x) => (float[6, 4] y, seq(float[k, 4]) s) { s = SplitToSequence <axis = 0> (x)"
    " m = SequenceMap (s) <body = b (float[k, 4] e) => (float[k, 4] f) { f = Sigmoid (e) }>"
    " c = ConcatFromSequence <axis = 0> (m) o = Optional (c) h = OptionalGetElement (o) y = own.G (h) }"
    ' <domain: "own", opset_import: ["": 18, "own": 1]> G (a) => (b) { c = own.H (a) d = own.H (c) b'
    " = Add (c, d) }"
    ' <domain: "own", opset_import: ["": 18]> H (a) => (b) { w = Constant <value = float[4] {1.0,'
    " 2.0, 3.0, 4.0}> ()"
    " b = Mul (a, w) }",
    # Classical models, operators of onnxruntime
    "g (float[n, 2] x) => (int64[n] label, float[n, 2] p) { label, p = ai.onnx.ml.LinearClassifier"
    " <classlabels_ints = [0, 1], coefficients = [0.5, 1.0, 0.5, 1.0]> (x) }",
    "g (float[n, 2] x) => (float[n, 1] y) { s = ai.onnx.ml.Scaler <offset = [0.0, 1.0], scale = [1.0,"
    " 2.0]> (x)"
    " y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_falsenodeids = [2, 0, 0],"
    ' nodes_featureids = [1, 0, 0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_nodeids'
    " = [0, 1, 2],"
    " nodes_treeids = [0, 0, 0], nodes_truenodeids = [1, 0, 0], nodes_values = [0.5, 0.0, 0.0],"
    " target_ids = [0, 0], target_nodeids = [1, 2], target_treeids = [0, 0], target_weights = [1.0,"
    " 2.0]> (s) }",
    "g (float[2, 8] x, uint8[16, 1, 4] b, float[16] s) => (float[2, 16] y)"
    " { m = com.microsoft.MatMulNBits <K = 8, N = 16, bits = 4, block_size = 16> (x, b, s)"
    " y = com.microsoft.QuickGelu (m) }",
    # Normalization, pooling, transposed convolution
    "g (float[1, 8, 8, 8] x, float[8, 4, 2, 2] k, float[4] s, float[8] u) => (float[1, 4] y, int64[1,"
    " 3] i)"
    ' { p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], auto_pad = "SAME_UPPER"> (x)'
    " b = BatchNormalization (p, u, u, u, u) c = ConvTranspose <strides = [2, 2]> (b, k) n ="
    " InstanceNormalization (c, s, s)"
    " a = GlobalAveragePool (n) y = Flatten (a) t = Constant <value_ints = [3]> () v, i = TopK (y, t)"
    " }",
)
_NEW_MODELS = (
    "g (float[1, 2, 4, 8] q, float[1, 2, 4, 8] k, float[8] w) => (float[1, 2, 4, 8] y)"
    " { n = RMSNormalization (q, w) y = Attention <is_causal = 1> (n, k, k) }",
)


@dataclass(frozen=True)
class Outcomes:
    """Numbers of mutated files by outcome.

    Args:
        read: files with a text that is its own canonical form.
        inconsistent: files whose text, read again, gives another text.
        refused: files with a clear error.
        crash: files that ended the process, or took more memory than MAX_MEMORY.
        hang: files that took longer than the limit.
        traceback: files that raised another exception, or whose text ONNX does not parse.
    """

    read: int = 0
    inconsistent: int = 0
    refused: int = 0
    crash: int = 0
    hang: int = 0
    traceback: int = 0


def seed_models(files: Sequence[Path] = ()) -> list[bytes]:
    """Return small models that are mutated.

    Args:
        files: further ONNX files, of at most MAX_FUZZED_BYTES bytes.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is larger, or is no ONNX file.
    """
    models = [onnx.parser.parse_model(f"{_HEAD} {text}") for text in _MODELS]
    models += [onnx.parser.parse_model(f"{_NEW_HEAD} {text}") for text in _NEW_MODELS]
    for name, weights in (*((name, False) for name in SPACES), (SPACE_WITH_WEIGHTS, True)):
        space = search_spaces.get(name)
        models.append(space.to_onnx(space.sample(np.random.default_rng(0)), weights=weights))
    return [model.SerializeToString() for model in models] + [_read_seed(file) for file in files]


def _read_seed(path: Path) -> bytes:
    """Return the bytes of an ONNX file."""
    load(path, Limits(max_bytes=MAX_FUZZED_BYTES))
    return path.read_bytes()


def read_file(
    path: Path, encode: Callable[[str], list[int]], limits: Limits = DEFAULT_LIMITS
) -> tuple[str, str]:
    """Read a file as a user's file is read.

    Args:
        path: the file.
        encode: function that returns the token ids of a text.
        limits: limits of the reader.

    Returns:
        The outcome, one of OUTCOMES, and its reason.
    """
    try:
        text = from_onnx(path, limits=limits)
    except (ValueError, FileNotFoundError) as error:
        return "refused", str(error)
    except MemoryError:
        return "crash", f"more than {MAX_MEMORY:,} bytes\n{traceback.format_exc(limit=-4)}"
    except Exception:
        return "traceback", traceback.format_exc(limit=-4)
    try:
        encode(text)
        try:
            graph_features(text)
        except ValueError as error:
            if "is not canonical ONNX text" in str(error):
                raise
        again = onnx.parser.parse_model(text)
    except MemoryError:
        return "crash", f"more than {MAX_MEMORY:,} bytes\n{traceback.format_exc(limit=-4)}"
    except (Exception, DecodeError):
        return "traceback", f"{traceback.format_exc(limit=-4)}\n{text}"
    try:
        is_consistent = from_onnx(again, limits=limits) == text
    except ValueError as error:
        return "inconsistent", f"{error}\n{text}"
    except Exception:
        return "traceback", f"{traceback.format_exc(limit=-4)}\n{text}"
    return ("read", "") if is_consistent else ("inconsistent", text)


def run_cases(
    seeds: Sequence[bytes], cases: Iterable[int], seed: int, limit: float
) -> Iterator[tuple[int, str, str]]:
    """Yield number, outcome and reason of mutated files, which are read in a process of their own.

    Args:
        seeds: serialized models, from `seed_models`.
        cases: numbers of the mutations.
        seed: seed of all mutations.
        limit: seconds that a file may take.
    """
    with tempfile.TemporaryDirectory() as directory:
        remaining = iter(cases)
        case = next(remaining, None)
        while case is not None:
            worker, connection = _start_worker(seeds, seed, Path(directory), limit)
            try:
                outcome = "read", ""
                while case is not None and outcome[0] not in ("crash", "hang"):
                    outcome = _outcome(connection, case, limit)
                    yield case, *outcome
                    case = next(remaining, None)
            finally:
                worker.kill()
                worker.join()
                connection.close()


def _outcome(connection: Connection, case: int, limit: float) -> tuple[str, str]:
    """Return the outcome of a case, and its reason."""
    try:
        connection.send(case)
        if not connection.poll(limit):
            return "hang", f"more than {limit:g} s"
        outcome: tuple[str, str] = connection.recv()
        return outcome
    except (EOFError, OSError):
        return "crash", "the process ended"


def _start_worker(
    seeds: Sequence[bytes], seed: int, directory: Path, limit: float
) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """Return a process that reads mutated files in a directory, and the connection to it."""
    context = multiprocessing.get_context("fork")
    parent, child = context.Pipe()
    worker = context.Process(target=_work, args=(child, parent, seeds, seed, directory, limit), daemon=True)
    worker.start()
    child.close()
    return worker, parent


def _work(
    connection: Connection,
    parent: Connection,
    seeds: Sequence[bytes],
    seed: int,
    directory: Path,
    limit: float,
) -> None:
    """Read the mutated files whose numbers arrive, and send their outcomes."""
    parent.close()
    _limit_memory()
    limits = Limits(max_seconds=limit / 3)  # each file is read twice
    encode = Tokenizer.load(ASSETS / "nas" / "tokenizer.model").encode
    _write_external_data(directory)
    path = directory / "mutated.onnx"
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        path.write_bytes(mutate(seeds, seed, case))
        outcome, reason = read_file(path, encode, limits)
        connection.send((outcome, reason[:MAX_REASON]))


def _limit_memory() -> None:
    """Let this process have MAX_MEMORY more bytes of memory than now; on Linux only."""
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        pages = int(statistics.read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _write_external_data(directory: Path) -> None:
    """Write files and links to which external data of mutated models refer, see EXTERNAL_LOCATIONS."""
    (directory / "folder").mkdir(exist_ok=True)
    (directory / "small.bin").write_bytes(bytes(range(64)))
    with (directory / "huge.bin").open("wb") as file:
        file.truncate(2**36)  # a sparse file
    if not (directory / "link").is_symlink():
        (directory / "link").symlink_to("/dev/zero")
