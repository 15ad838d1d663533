"""Random changes of ONNX files, as bytes and as graphs, for tests of the reader."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, TensorProto, helper

from nas_rlm.benchmarks.robustness.byte_mutations import mutate_bytes
from nas_rlm.benchmarks.robustness.odd_onnx_values import (
    DOMAINS,
    EXTERNAL_LOCATIONS,
    FLOATS,
    INTEGERS,
    NAMES,
    STRINGS,
    odd_tensor,
    odd_types,
    odd_value,
)

BYTES_SHARE = 0.3  # of the cases: changes of the bytes, without regard to the format
MAX_ATTEMPTS = 10  # to change bytes so that the file can still be parsed
MAX_REPEATED_NODES = 3000
Mutation = Callable[[onnx.ModelProto, random.Random], None]


def mutate(seeds: Sequence[bytes], seed: int, case: int) -> bytes:
    """Return a mutated model; it depends on the arguments alone.

    Args:
        seeds: serialized models, from which one is drawn.
        seed: seed of all mutations.
        case: number of the mutation.
    """
    rng = random.Random(f"{seed} {case}")
    content = rng.choice(seeds)
    if rng.random() < BYTES_SHARE:
        return mutate_bytes(content, rng, attempts=rng.choice((1, MAX_ATTEMPTS)))
    model = onnx.load_model_from_string(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        try:
            rng.choice(MUTATIONS)(model, rng)
        except (ValueError, TypeError, AttributeError, IndexError, DecodeError, EncodeError):
            continue  # there is nothing to change, or protobuf does not accept the value
    try:
        return bytes(model.SerializeToString())
    except (ValueError, EncodeError):  # nested too deeply
        return content[: rng.randrange(len(content))]


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """Return the graph of a model and all its subgraphs."""
    graphs = [model.graph]
    for graph in graphs:
        graphs += [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return graphs


def _node_lists(model: onnx.ModelProto) -> list[Any]:
    """Return the lists of nodes of all graphs and functions that have nodes."""
    lists = [g.node for g in _graphs(model)] + [f.node for f in model.functions]
    return [nodes for nodes in lists if nodes]


def _node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    """Return a random node; an IndexError if there is none."""
    node: onnx.NodeProto = rng.choice(rng.choice(_node_lists(model)))
    return node


def _names(model: onnx.ModelProto) -> list[str]:
    """Return the names of the values of a model."""
    graphs = _graphs(model)
    names = {o for nodes in _node_lists(model) for n in nodes for o in (*n.output, *n.input)}
    names.update(v.name for g in graphs for v in (*g.input, *g.output, *g.initializer))
    return sorted(names) or ["x"]


def _values(model: onnx.ModelProto, rng: random.Random) -> Any:
    """Return the inputs, outputs or value infos of a random graph that has some."""
    graph = rng.choice(_graphs(model))
    return rng.choice([v for v in (graph.input, graph.output, graph.value_info) if v])


def _set(field: Any, messages: Sequence[Any]) -> None:
    """Replace the content of a repeated field."""
    kept = [m if isinstance(m, int | float | str | bytes) else _copy(m) for m in messages]
    del field[:]
    field.extend(kept)


def _copy(message: Any) -> Any:
    """Return a copy of a message, which outlives its parent."""
    return type(message).FromString(message.SerializeToString())


def _shuffle(field: Any, rng: random.Random) -> None:
    """Remove, repeat or reorder elements of a repeated field."""
    items = list(field)
    position, action = rng.randrange(len(items)), rng.randrange(4)
    if action == 0:
        del items[position]
    elif action == 1:
        items.insert(rng.randrange(len(items) + 1), items[position])
    elif action == 2:
        rng.shuffle(items)
    else:
        items.reverse()
    _set(field, items)


@cache
def _schemas() -> tuple[tuple[str, str, int, int, tuple[str, ...]], ...]:
    """Return name, domain, numbers of inputs and outputs, and attributes of all known operators."""
    return tuple(
        (s.name, s.domain, min(s.max_input, 8), min(s.max_output, 4), tuple(s.attributes))
        for s in sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name))
    )


def _change_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    known = [name for s in _schemas() if s[0] == node.op_type for name in s[4]]
    name = rng.choice([a.name for a in node.attribute] + known + ["unknown"])
    kept = [a for a in node.attribute if a.name != name or rng.random() < 0.1]
    if rng.random() < 0.85:
        value = odd_value(rng)
        kind = AttributeProto.INTS if isinstance(value, list) and not value else None
        kept.append(helper.make_attribute(name, value, attr_type=kind))
    _set(node.attribute, kept)


def _change_attribute_content(model: onnx.ModelProto, rng: random.Random) -> None:
    attribute, action = rng.choice(_node(model, rng).attribute), rng.randrange(6)
    if action == 0:
        attribute.type = rng.randrange(15)
    elif action == 1:
        attribute.name = rng.choice(NAMES)
    elif action == 2:
        attribute.ref_attr_name = rng.choice(NAMES)
    elif action == 3:
        attribute.i, attribute.f = rng.choice(INTEGERS), rng.choice(FLOATS)
    elif action == 4:
        attribute.s = rng.choice(STRINGS)
    else:
        _shuffle(rng.choice([f for f in (attribute.ints, attribute.floats, attribute.strings) if f]), rng)


def _change_inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node, names = _node(model, rng), _names(model)
    values = list(node.input)
    position, action = rng.randrange(len(values) + 1), rng.randrange(5)
    name = rng.choice([*names, *names, "", "nowhere"])
    if action in (0, 1):
        values[position : position + 1] = [name]
    elif action == 2:
        del values[position : position + 1]
    elif action == 3:
        values[position:position] = [name] * rng.choice((1, 1, 3, 500))
    else:
        rng.shuffle(values)
    _set(node.input, values)


def _change_outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    values = list(node.output)
    position, action = rng.randrange(len(values) + 1), rng.randrange(4)
    if action == 0:
        values[position : position + 1] = [rng.choice([*_names(model), *NAMES])]
    elif action == 1:
        del values[position : position + 1]
    elif action == 2:
        values[position:position] = [f"more{k}" for k in range(rng.choice((1, 2, 9, 3000)))]
    else:
        rng.shuffle(values)
    _set(node.output, values)


def _rename_value(model: onnx.ModelProto, rng: random.Random) -> None:
    """Rename a value wherever it occurs, mostly to an odd name, which is valid."""
    old, new = rng.choice(_names(model)), rng.choice([*NAMES, *_names(model)])
    for nodes in _node_lists(model):
        for node in nodes:
            for field in (node.input, node.output):
                for k, name in enumerate(field):
                    if name == old:
                        field[k] = new
    for graph in _graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            if value.name == old:
                value.name = new


def _change_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node, (name, domain, inputs, outputs, _) = _node(model, rng), rng.choice(_schemas())
    action = rng.randrange(6)
    if action == 0:
        node.op_type = rng.choice(NAMES)
    elif action == 1:
        node.domain = rng.choice(DOMAINS)
    else:
        node.op_type = name
        node.domain = domain if rng.random() < 0.8 else rng.choice(DOMAINS)
    if action > 3:  # a node with as many inputs and outputs as the operator has
        names = _names(model)
        _set(node.input, [*node.input, *(rng.choice(names) for _ in range(inputs))][:inputs])
        _set(node.output, [*node.output, *(f"new{k}" for k in range(outputs))][:outputs])
        if rng.random() < 0.8:
            del node.attribute[:]


def _add_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    """Insert an operator with odd constants as inputs before the reader of a value."""
    nodes = rng.choice(_node_lists(model))
    position = rng.randrange(len(nodes))
    name, domain, inputs, outputs, attributes = rng.choice(_schemas())
    reader = _copy(nodes[position])
    constants = [
        helper.make_node("Constant", [], [f"odd{k}"], value=odd_tensor("t", rng))
        for k in range(rng.randrange(inputs + 1))
    ]
    read = ([*reader.input[:1], *(c.output[0] for c in constants)] or [""])[: inputs or None]
    node = helper.make_node(name, read, [f"new{k}" for k in range(max(1, outputs))], domain=domain)
    for attribute in rng.sample(attributes, min(len(attributes), rng.randrange(3))):
        value = odd_value(rng)
        if value != []:
            node.attribute.append(helper.make_attribute(attribute, value))
    if reader.input:
        reader.input[0] = "new0"
    _set(nodes, [*nodes[:position], *constants, node, reader, *nodes[position + 1 :]])


def _change_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    _shuffle(rng.choice(_node_lists(model)), rng)


def _repeat_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    """Insert a chain, or a fan, of many nodes."""
    nodes = model.graph.node
    first = rng.choice([n.input[0] for n in nodes if n.input and n.input[0]])
    kind, is_chain = rng.choice(("Relu", "Add", "Concat", "Identity", "Neg")), rng.random() < 0.6
    added, last = [], first
    for k in range(rng.choice((2, 40, 400, MAX_REPEATED_NODES))):
        read = [last] if kind in ("Relu", "Identity", "Neg") else [last, rng.choice((first, last))]
        node = helper.make_node(kind, read, [f"r{k}"])
        if kind == "Concat":
            node.attribute.append(helper.make_attribute("axis", 0))
        added.append(node)
        last = f"r{k}" if is_chain or rng.random() < 0.1 else first
    added.append(helper.make_node("Sum", [n.output[0] for n in added], ["all"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("all" if rng.random() < 0.5 else last))
    _set(nodes, [*nodes, *added])


def _change_type(model: onnx.ModelProto, rng: random.Random) -> None:
    value = rng.choice(_values(model, rng))
    tensor, action = value.type.tensor_type, rng.randrange(8)
    if action == 0:
        tensor.elem_type = rng.randrange(30)
    elif action == 1:
        value.ClearField("type")
    elif action == 2:
        value.name = rng.choice(NAMES)
    elif action == 3:
        tensor.ClearField("shape")
    elif action == 4:
        tensor.shape.dim.add(dim_value=rng.choice(INTEGERS))
    elif action == 5:
        value.type.CopyFrom(rng.choice(odd_types()))
    else:
        dim = rng.choice(tensor.shape.dim)
        if rng.random() < 0.7:
            dim.dim_value = rng.choice(INTEGERS)
        else:
            dim.dim_param = rng.choice((*NAMES, "n", "N0", "?"))


def _change_values(model: onnx.ModelProto, rng: random.Random) -> None:
    _shuffle(_values(model, rng), rng)


def _change_initializer(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = rng.choice(rng.choice([g.initializer for g in _graphs(model) if g.initializer]))
    action = rng.randrange(8)
    if action == 0:
        tensor.data_type = rng.randrange(30)
    elif action == 1:
        _set(tensor.dims, [rng.choice(INTEGERS) for _ in range(rng.choice((0, 1, 2, 4, 40)))])
    elif action == 2:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(INTEGERS)
    elif action == 3:
        tensor.raw_data = rng.randbytes(rng.choice((0, 1, 7, 8, 64)))
    elif action == 4:
        tensor.name = rng.choice([*NAMES, *_names(model)])
    elif action == 5:
        tensor.CopyFrom(odd_tensor(tensor.name, rng))
    elif action == 6:
        tensor.segment.begin, tensor.segment.end = rng.choice(INTEGERS), rng.choice(INTEGERS)
    else:
        _make_external(tensor, rng)


def _change_constant(model: onnx.ModelProto, rng: random.Random) -> None:
    """Replace values of an initialiser or Constant by odd ones, of the same number and type."""
    tensors = [t for g in _graphs(model) for t in g.initializer]
    tensors += [a.t for nodes in _node_lists(model) for n in nodes for a in n.attribute if a.HasField("t")]
    kinds = TensorProto.INT64, TensorProto.FLOAT
    external = TensorProto.EXTERNAL
    tensor = rng.choice([t for t in tensors if t.data_type in kinds and t.data_location != external])
    values = INTEGERS if tensor.data_type == TensorProto.INT64 else FLOATS
    array = onnx.numpy_helper.to_array(tensor).copy()
    for _ in range(rng.choice((1, 1, 4))):
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(values)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _make_external(tensor: TensorProto, rng: random.Random) -> None:
    """Let a tensor refer to a file, which may not exist, be a device or end early."""
    if rng.random() < 0.7:
        for field in ("raw_data", "float_data", "int64_data", "int32_data"):
            tensor.ClearField(field)
    if rng.random() < 0.5:
        _set(tensor.dims, [rng.choice((1, 2, 4)) for _ in range(rng.randrange(3))])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=rng.choice(EXTERNAL_LOCATIONS))
    for key in ("offset", "length", "checksum", "other"):
        if rng.random() < 0.4:
            tensor.external_data.add(key=key, value=str(rng.choice((*INTEGERS, "x", "", "1e9"))))


def _add_initializer(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give a value, mostly an input of a node, an initialiser, which may be sparse or external."""
    graph = rng.choice(_graphs(model))
    tensor = odd_tensor(rng.choice(_names(model)), rng)
    action = rng.randrange(4)
    if action == 0:
        indices = TensorProto(data_type=7, dims=[rng.choice(INTEGERS)])
        indices.int64_data.extend(rng.choice(INTEGERS) for _ in range(rng.randrange(4)))
        dims = [rng.choice(INTEGERS) for _ in range(rng.randrange(4))]
        graph.sparse_initializer.append(onnx.SparseTensorProto(values=tensor, indices=indices, dims=dims))
        return
    if action == 1:
        _make_external(tensor, rng)
    graph.initializer.append(tensor)


def _nest_graphs(model: onnx.ModelProto, rng: random.Random) -> None:
    """Nest the graph in branches or loops."""
    inner = _copy(model.graph)
    if rng.random() < 0.5:
        del inner.input[:]
    outputs = [o.name for o in inner.output] or ["o"]
    for depth in range(rng.choice((1, 2, 10, 24, 40))):
        kind = rng.choice(("If", "If", "Loop", "Scan", "SequenceMap", "Relu"))
        empty = helper.make_graph([], "e", [], [])
        graphs = {"then_branch": inner, "else_branch": empty} if kind == "If" else {"body": inner}
        read = [rng.choice(_names(model)) for _ in range(1 if kind == "If" else rng.randrange(4))]
        node = helper.make_node(kind, read, [f"{o}_{depth}" for o in outputs[:1]], **graphs)
        inner = helper.make_graph(
            [node], "nested", [], [helper.make_empty_tensor_value_info(o) for o in node.output]
        )
    model.graph.node.append(inner.node[0])
    model.graph.output.append(inner.output[0])


def _add_functions(model: onnx.ModelProto, rng: random.Random) -> None:
    """Add local functions that call themselves, each other in a cycle, or the next one several times."""
    count, calls, is_cycle = rng.choice((1, 2, 10, 40)), rng.choice((1, 2, 10)), rng.random() < 0.4
    for k in range(count):
        called = (k + 1) % count if is_cycle else k + 1
        kind, domain = (f"N{called}", "own") if called < count else ("Relu", "")
        nodes = [
            helper.make_node(kind, [f"t{j}" if j else "a"], [f"t{j + 1}"], domain=domain)
            for j in range(calls)
        ]
        imports = [helper.make_opsetid("own", 1), helper.make_opsetid("", rng.choice((6, 13, 21, 99)))]
        imports = imports[: rng.choice((1, 2, 2, 2))]
        model.functions.append(helper.make_function("own", f"N{k}", ["a"], [f"t{calls}"], nodes, imports))
    model.graph.node.append(helper.make_node("N0", [rng.choice(_names(model))], ["called"], domain="own"))
    model.graph.output.append(helper.make_empty_tensor_value_info("called"))
    if rng.random() < 0.9:
        model.opset_import.append(helper.make_opsetid("own", 1))


def _change_function(model: onnx.ModelProto, rng: random.Random) -> None:
    function, action = rng.choice(model.functions), rng.randrange(6)
    if action == 0:
        function.name = rng.choice((*NAMES, "Relu", "Conv"))
    elif action == 1:
        function.domain = rng.choice(DOMAINS)
    elif action == 2:
        rng.choice(function.node).op_type, rng.choice(function.node).domain = function.name, function.domain
    else:
        fields = function.input, function.output, function.attribute, function.opset_import
        _shuffle(rng.choice([f for f in fields if f]), rng)


def _change_model(model: onnx.ModelProto, rng: random.Random) -> None:
    action = rng.randrange(6)
    if action == 0:
        versions = (0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 20, 22, 23, 24, 99, -1, 2**62)
        rng.choice(model.opset_import).version = rng.choice(versions)
    elif action == 1:
        rng.choice(model.opset_import).domain = rng.choice(DOMAINS)
    elif action == 2:
        _shuffle(model.opset_import, rng)
    elif action == 3:
        names = rng.sample(_names(model), min(5, len(_names(model))))
        _set(model.graph.output, [helper.make_empty_tensor_value_info(n) for n in names])
    elif action == 4:
        model.ir_version = rng.choice(INTEGERS)
    else:
        model.graph.name = model.producer_name = rng.choice(NAMES)


MUTATIONS: tuple[Mutation, ...] = (
    *(_change_attribute, _change_attribute, _change_attribute, _change_attribute_content),
    *(_change_inputs, _change_inputs, _change_outputs, _rename_value),
    *(_change_operator, _change_operator, _add_operator, _add_operator, _change_nodes, _repeat_nodes),
    *(_change_type, _change_type, _change_values, _change_initializer, _change_initializer),
    *(_change_constant, _add_initializer),
    *(_nest_graphs, _add_functions, _change_function, _change_model),
)
