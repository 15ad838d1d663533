"""Mutated ONNX files: whether reading them can crash, hang, or raise an unclear exception."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper

import search_spaces
from nas_rlm.data.synthetic import graph_features
from nas_rlm.files import ASSETS
from nas_rlm.text import Tokenizer, from_onnx

SPACES = ("nasbench201", "nats_size", "fbnet", "ofa_mbv3", "two_path")
OUTCOMES = ("read", "inconsistent", "refused", "crash", "hang", "traceback")
FAILURES = ("crash", "hang", "traceback")
MAX_MEMORY = 8 * 1024**3  # of a worker
MAX_FUZZED_BYTES = 4 * 1024**2  # of a seed
_HEAD = '<ir_version: 9, opset_import: ["": 21, "ai.onnx.ml": 3, "com.microsoft": 1, "own": 1]>'
_MODELS = (
    "g (float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float[n, 8, a, b] y)"
    " <int64[1] two = {2}, int64[1] i = {2}>"
    " { c = Conv <pads = [1, 1, 1, 1]> (x, k) s = Shape (c) h = Gather <axis = 0> (s, i) d = Mul (h, two)"
    " f = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> () r = Resize (c, , f)"
    " t = Concat <axis = 0> (d, two)"
    " y = Relu (r) }",
    "g (float[5, 1, 4] x, float[1, 16, 4] w, float[1, 16, 4] r) => (float[5, 1, 4] y)"
    " { o, p = LSTM <hidden_size = 4> (x, w, r) one = Constant <value_ints = [1]> () y = Squeeze (o, one) }",
    "g (float[1, 4, 6] q, float[6, 12] w, bool b) => (float[1, 4, 4] y)"
    " { p = MatMul (q, w) u, v = Split <axis = 2, num_outputs = 2> (p) t = Transpose <perm = [0, 2, 1]> (v)"
    " m = MatMul (u, t) z = If (b) <then_branch = a () => (float[1, 4, 4] a1) { a1 = Softmax (m) },"
    " else_branch = e () => (float[1, 4, 4] e1) { e1 = Neg (m) }>"
    ' y = Einsum <equation = "bij,bjk->bik"> (z, m) }',
    "g (float[2, 3] x, int64 n) => (float[2, 3] y) { c = Constant <value = bool {1}> ()"
    " y = Loop (n, c, x) <body = b (int64 i, bool k, float[2, 3] a) => (bool k2, float[2, 3] a2)"
    " { k2 = Identity (k) a2 = Add (a, a) }> }",
    "g (float[4, 2] x, float[2] h) => (float[2] z, float[4, 2] y)"
    " { z, y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] s2, float[2] o)"
    " { s2 = Add (s, e) o = Relu (s2) }> (h, x) }",
    "g (float[1, 3, 8, 8] x, int8[4, 3, 1, 1] k) => (float[1, 4, 8, 8] y)"
    " <float xs = {0.02}, uint8 xz = {128}, float ws = {0.01}, int8 wz = {0}>"
    " { q = QuantizeLinear (x, xs, xz) d = DequantizeLinear (q, xs, xz) w = DequantizeLinear (k, ws, wz)"
    " y = Conv (d, w) }",
    "g (float[1, 4] x) => (float[1, 4] y) { s = SequenceConstruct (x, x) i = Constant <value_int = 0> ()"
    " a = SequenceAt (s, i) y = own.F <alpha = 0.5> (a) }"
    ' <domain: "own", opset_import: ["": 18]> F <alpha> (a) => (b)'
    " { c = LeakyRelu <alpha: float = @alpha> (a)"
    " b = Clip (c) }",
    "g (float[n, 2] x) => (int64[n] label, float[n, 2] p) { label, p = ai.onnx.ml.LinearClassifier"
    " <classlabels_ints = [0, 1], coefficients = [0.5, 1.0, 0.5, 1.0]> (x) }",
    "g (float[2, 8] x, uint8[16, 1, 4] b, float[16] s) => (float[2, 16] y)"
    " { m = com.microsoft.MatMulNBits <K = 8, N = 16, bits = 4, block_size = 16> (x, b, s)"
    " y = com.microsoft.QuickGelu (m) }",
)


@dataclass(frozen=True)
class Outcomes:
    """Numbers of mutated files by outcome.

    Args:
        read: files with a text that is its own canonical form.
        inconsistent: files whose text, read again, gives another text.
        refused: files with a clear error.
        crash: files that ended the process.
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
    """
    models = [onnx.parser.parse_model(f"{_HEAD} {text}") for text in _MODELS]
    for name in SPACES:
        space = search_spaces.get(name)
        models.append(space.to_onnx(space.sample(np.random.default_rng(0))))
    seeds = [model.SerializeToString() for model in models]
    return seeds + [file.read_bytes() for file in files if file.stat().st_size <= MAX_FUZZED_BYTES]


def mutate(seeds: Sequence[bytes], seed: int, case: int) -> bytes:
    """Return a mutated model; it depends on the arguments alone.

    Args:
        seeds: serialized models.
        seed: seed of all mutations.
        case: number of the mutation.
    """
    rng = np.random.default_rng([seed, case])
    content = seeds[int(rng.integers(len(seeds)))]
    if rng.random() < 0.4:
        return _mutate_bytes(content, rng)
    model = onnx.load_model_from_string(content)
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        mutation = _MUTATIONS[rng.integers(len(_MUTATIONS))]
        try:
            mutation(model, rng)
        except (ValueError, TypeError, AttributeError, DecodeError):
            continue  # a value or depth that protobuf does not accept
    return bytes(model.SerializeToString())


def _mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes of which some are changed, removed, repeated or moved."""
    data = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        kind, a = rng.integers(5), int(rng.integers(len(data) or 1))
        b = a + int(rng.integers(1, 64))
        if kind == 0 and data:
            data[a] = int(rng.integers(256))
        elif kind == 1:
            del data[a:b]
        elif kind == 2:
            data[a:a] = data[a:b]
        elif kind == 3:
            data[a:a] = bytes(rng.integers(256, size=b - a, dtype=np.uint8))
        elif kind == 4:
            data = data[:a]
    return bytes(data)


def _graph(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.GraphProto:
    """Return the graph of a model, or one of its subgraphs."""
    graphs = [model.graph]
    graphs += [a.g for n in model.graph.node for a in n.attribute if a.type == AttributeProto.GRAPH]
    return graphs[rng.integers(len(graphs))]


def _node(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto:
    """Return a node of a model."""
    nodes = [*_graph(model, rng).node] or [*model.graph.node]
    nodes += [n for f in model.functions for n in f.node]
    if not nodes:
        raise ValueError("no nodes are left")
    return nodes[rng.integers(len(nodes))]


def _odd_integer(rng: np.random.Generator) -> int:
    """Return an integer at which code may break."""
    values = (
        0,
        1,
        -1,
        2,
        -2,
        3,
        7,
        63,
        64,
        4097,
        2**31 - 1,
        -(2**31),
        2**31,
        2**40,
        2**62,
        -(2**63),
        2**63 - 1,
    )
    return int(values[rng.integers(len(values))])


def _odd_value(rng: np.random.Generator) -> Any:
    """Return a value for an attribute."""
    values: tuple[Any, ...] = (
        *(_odd_integer(rng), 0.5, float("nan"), float("inf"), -1e300, b"", b"\xff\x00", "SAME_UPPER"),
        "x" * 5000,
        *([_odd_integer(rng) for _ in range(rng.integers(6))], [1.0, float("nan")], ["a", "b"]),
        helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_graph([], "empty", [], []),
        "->", "ij,jk->ik", "...,...", "i" * 60,
    )  # fmt: skip
    return values[rng.integers(len(values))]


def _change_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    known = [*onnx.defs.get_schema(node.op_type).attributes] if onnx.defs.has(node.op_type) else ["alpha"]
    names = [a.name for a in node.attribute] + known
    name = names[rng.integers(len(names))] if names and rng.random() < 0.9 else "unknown"
    kept = [a for a in node.attribute if a.name != name or rng.random() < 0.1]
    del node.attribute[:]
    node.attribute.extend(kept)
    if rng.random() < 0.8:
        value = _odd_value(rng)
        if value != []:
            node.attribute.append(helper.make_attribute(name, value))


def _change_inputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node, graph = _node(model, rng), model.graph
    names = ["", "nowhere", *(i.name for i in graph.input), *(t.name for t in graph.initializer)]
    names += [o for n in graph.node for o in n.output]
    values = list(node.input)
    action, k = rng.integers(4), int(rng.integers(max(1, len(values))))
    if action == 0 and values:
        values[k] = names[rng.integers(len(names))]
    elif action == 1 and values:
        del values[k]
    elif action == 2:
        values += [names[rng.integers(len(names))]] * int(rng.choice([1, 1, 3, 300]))
    else:
        rng.shuffle(values)
    del node.input[:]
    node.input.extend(values)


def _change_outputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = _node(model, rng)
    values = [*node.output, f"more{rng.integers(9)}"][int(rng.integers(2)) :]
    del node.output[:]
    node.output.extend(values)


def _change_operator(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    schemas = onnx.defs.get_all_schemas()
    schema = schemas[int(rng.integers(len(schemas)))]
    node = _node(model, rng)
    node.op_type = schema.name if rng.random() < 0.9 else "NoSuchOperator"
    if rng.random() < 0.3:
        node.domain = ("", schema.domain, "com.microsoft", "own", "a b", "f")[rng.integers(6)]


def _change_nodes(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    graph = _graph(model, rng)
    nodes = [*graph.node]
    if not nodes:
        return
    k, action = int(rng.integers(len(nodes))), rng.integers(4)
    if action == 0:
        del nodes[k]
    elif action == 1:
        nodes.insert(k, nodes[int(rng.integers(len(nodes)))])
    elif action == 2:
        nodes = [nodes[i] for i in rng.permutation(len(nodes))]
    else:
        nodes[k:k] = [
            helper.make_node("Relu", [f"r{i}" if i else nodes[0].output[0]], [f"r{i + 1}"])
            for i in range(200)
        ]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _change_value(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    graph = _graph(model, rng)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    value = values[rng.integers(len(values))]
    tensor, action = value.type.tensor_type, rng.integers(5)
    if action == 0:
        tensor.elem_type = int(rng.integers(0, 30))
    elif action == 1:
        value.ClearField("type")
    elif action == 2:
        value.name = ("", "W3_3", "x0", "a" * 3000, "naïve\n")[rng.integers(5)]
    elif tensor.shape.dim:
        dim = tensor.shape.dim[int(rng.integers(len(tensor.shape.dim)))]
        if rng.random() < 0.7:
            dim.dim_value = _odd_integer(rng)
        else:
            dim.dim_param = ("n", "", "a b", "N0")[rng.integers(4)]
    else:
        tensor.shape.dim.add(dim_value=_odd_integer(rng))


def _change_initializer(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    graph = model.graph
    if not graph.initializer or rng.random() < 0.2:
        names = [n for node in graph.node for n in node.input if n] or ["w"]
        dims = [_odd_integer(rng) for _ in range(rng.integers(4))]
        tensor = TensorProto(
            name=names[rng.integers(len(names))], data_type=int(rng.integers(1, 24)), dims=dims
        )
        graph.initializer.append(tensor)
        return
    tensor, action = graph.initializer[int(rng.integers(len(graph.initializer)))], rng.integers(5)
    if action == 0:
        tensor.data_type = int(rng.integers(0, 30))
    elif action == 1:
        del tensor.dims[:]
        tensor.dims.extend([_odd_integer(rng) for _ in range(rng.integers(6))])
    elif action == 2:
        tensor.raw_data = bytes(rng.integers(256, size=int(rng.integers(64)), dtype=np.uint8))
    elif action == 3:
        tensor.data_location = TensorProto.EXTERNAL
        places = ("/dev/zero", "../secret", "", ".", "missing.bin")
        tensor.external_data.add(key="location", value=places[rng.integers(5)])
        tensor.external_data.add(key="length", value=str(_odd_integer(rng)))
    else:
        sparse = onnx.SparseTensorProto(values=tensor, dims=[_odd_integer(rng), 4])
        graph.sparse_initializer.append(sparse)
        graph.initializer.remove(tensor)


def _change_model(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    action = rng.integers(4)
    if action == 0 and model.opset_import:
        model.opset_import[0].version = int(rng.choice([0, 1, 6, 7, 9, 11, 13, 18, 24, 99, 2**62]))
    elif action == 1:
        function = helper.make_function(
            "own",
            "F",
            ["a"],
            ["b"],
            [helper.make_node("F", ["a"], ["b"], domain="own")],
            [helper.make_opsetid("own", 1)],
        )
        model.functions.append(function)
        model.graph.node.append(helper.make_node("F", [model.graph.input[0].name], ["f_out"], domain="own"))
    elif action == 2:
        inner = model.graph
        for _ in range(int(rng.integers(1, 60))):
            node = helper.make_node(
                "If", ["c"], ["o"], then_branch=inner, else_branch=helper.make_graph([], "e", [], [])
            )
            inner = helper.make_graph([node], "nested", [], [helper.make_empty_tensor_value_info("o")])
        model.graph.node.append(inner.node[0])
    else:
        del model.graph.output[:]
        names = [o for n in model.graph.node for o in n.output] + [i.name for i in model.graph.input]
        model.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names[:2])


_MUTATIONS: tuple[Callable[[onnx.ModelProto, np.random.Generator], None], ...] = (
    *(
        _change_attribute,
        _change_attribute,
        _change_inputs,
        _change_inputs,
        _change_outputs,
        _change_operator,
    ),
    *(_change_nodes, _change_value, _change_value, _change_initializer, _change_model),
)


def read_file(path: Path, encode: Callable[[str], list[int]]) -> tuple[str, str]:
    """Read a file as a user's file is read.

    Args:
        path: the file.
        encode: function that returns the token ids of a text.

    Returns:
        The outcome, one of OUTCOMES, and its reason.
    """
    try:
        text = from_onnx(path)
    except ValueError as error:
        return "refused", str(error)
    except Exception:
        return "traceback", traceback.format_exc(limit=-4)
    try:
        encode(text)
        try:
            graph_features(text)
        except ValueError as error:
            if "is not canonical ONNX text" in str(error):
                raise
        again = from_onnx(onnx.parser.parse_model(text))
    except (Exception, DecodeError):
        return "traceback", f"{traceback.format_exc(limit=-4)}\n{text[:2000]}"
    return ("read", "") if again == text else ("inconsistent", text[:2000])


def run_cases(
    seeds: Sequence[bytes], cases: Sequence[int], seed: int, limit: float
) -> Iterator[tuple[int, str, str]]:
    """Yield number, outcome and reason of mutated files, which are read in a process of their own.

    Args:
        seeds: serialized models, from `seed_models`.
        cases: numbers of the mutations.
        seed: seed of all mutations.
        limit: seconds that a file may take.
    """
    context = multiprocessing.get_context("fork")
    remaining = list(cases)
    while remaining:
        parent, child = context.Pipe()
        worker = context.Process(target=_work, args=(child, seeds, seed), daemon=True)
        worker.start()
        child.close()
        while remaining:
            case = remaining.pop(0)
            outcome = "crash", "the process ended"
            try:
                parent.send(case)
                outcome = parent.recv() if parent.poll(limit) else ("hang", f"more than {limit:g} s")
            except (EOFError, OSError):
                pass
            yield case, *outcome
            if outcome[0] in ("crash", "hang"):
                break
        worker.kill()
        worker.join()
        parent.close()


def _work(connection: Connection, seeds: Sequence[bytes], seed: int) -> None:
    """Read the mutated files whose numbers arrive, and send their outcomes."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    encode = Tokenizer.load(ASSETS / "nas" / "tokenizer.model").encode
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "mutated.onnx"
        while True:
            try:
                case = connection.recv()
            except EOFError:
                return
            path.write_bytes(mutate(seeds, seed, case))
            connection.send(read_file(path, encode))
