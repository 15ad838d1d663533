import numpy as np
import onnx
import onnx.inliner
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import search_spaces
from nas_rlm.graph.limits import Limits
from nas_rlm.graph.reader import read_graph
from nas_rlm.graph.rewriting.normalization import normalize_model
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.canonical import costed_texts
from tests.nas_rlm.onnx_models import FlatModel, random_network, residual_network


def parsed(inputs, body):
    head = f'<ir_version: 10, opset_import: ["": 21, "f": 1]> main ({inputs}) => (float y)'
    return onnx.parser.parse_model(f"{head} {{ {body} }}")


def operator_kinds(model: onnx.ModelProto) -> list[str]:
    flat = onnx.inliner.inline_local_functions(model)
    return sorted(n.op_type for n in flat.graph.node if n.op_type != "Constant")


def shuffled(g: FlatModel, rng: np.random.Generator) -> onnx.ModelProto:
    """The same graph, its nodes in another topological order and its values under other names."""
    names = {f"t{i}": f"value_{j}" for i, j in enumerate(rng.permutation(len(g.nodes)))}
    done: set[str] = set()
    order: list[int] = []
    while len(order) < len(g.nodes):
        made = {n.output[0] for n in g.nodes}
        ready = [
            i
            for i, n in enumerate(g.nodes)
            if i not in order and all(v in done or v not in made for v in n.input)
        ]
        pick = int(rng.choice(ready))
        order.append(pick)
        done.add(g.nodes[pick].output[0])
    model = g.build(g.nodes[-1].output[0], order)
    for node in model.graph.node:
        node.name = f"node_{rng.integers(1000)}"
        node.doc_string = "made by a tool"
        inputs = [names.get(v, v) for v in node.input]
        if node.op_type == "Add" and rng.random() < 0.5:
            inputs.reverse()
        del node.input[:]
        node.input.extend(inputs)
        node.output[0] = names[node.output[0]]
    model.graph.output[0].name = names[model.graph.output[0].name]
    return model


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5))
def test_text_depends_on_the_graph_alone(seed, size, repeats):
    g = random_network(np.random.default_rng(seed), size, repeats)
    text = from_onnx(g.build(g.nodes[-1].output[0]))
    assert from_onnx(shuffled(g, np.random.default_rng(seed + 1))) == text


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5))
def test_text_parses_checks_inlines_and_is_its_own_canonical_form(seed, size, repeats):
    g = random_network(np.random.default_rng(seed), size, repeats)
    model = g.build(g.nodes[-1].output[0])
    text = from_onnx(model)
    parsed = onnx.parser.parse_model(text)
    onnx.checker.check_model(parsed)
    assert from_onnx(parsed) == text
    assert from_onnx(onnx.inliner.inline_local_functions(parsed)) == text
    assert operator_kinds(parsed) == operator_kinds(without_dead_code(model))


def without_dead_code(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the nodes that its output does not need."""
    needed = {model.graph.output[0].name}
    for node in reversed(model.graph.node):
        if node.output[0] in needed:
            needed.update(node.input)
    nodes = [n for n in model.graph.node if n.output[0] in needed]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def test_weight_values_never_enter_the_text():
    assert from_onnx(residual_network(4, initialisers=True)) == from_onnx(residual_network(4))


def test_default_attributes_do_not_matter():
    def network(inputs: int = 8, **attributes: object) -> str:
        g = FlatModel()
        x = g.op("Conv", "image", g.weight(8, inputs, 3, 3), pads=[1, 1, 1, 1], **attributes)
        return from_onnx(g.build(g.op("Relu", x)))

    plain = network()
    assert plain == network(strides=[1, 1], dilations=[1, 1], group=1, kernel_shape=[3, 3], auto_pad="NOTSET")
    assert plain != network(strides=[2, 2])
    assert "<g0=2>" in network(4, group=2)


def test_identity_nodes_do_not_change_the_text():
    g = FlatModel()
    x = g.op("Identity", g.op("Relu", "image"))
    h = FlatModel()
    assert from_onnx(g.build(g.op("Sigmoid", x))) == from_onnx(
        h.build(h.op("Sigmoid", h.op("Relu", "image")))
    )


def test_values_cut_off_by_a_product_with_zero_are_named_d():
    g = FlatModel()
    zero = g.op("Constant", value_float=0.0)
    dead = g.op("Sigmoid", "image")
    live = g.op("Relu", "image")
    text = from_onnx(g.build(g.op("Add", live, g.op("Mul", dead, zero))))
    names = {
        line.split("=")[1].split("(")[0]: line.split("=")[0] for line in text.splitlines() if "=" in line
    }
    assert names["Relu"].startswith("v") and names["Add"].startswith("v")
    assert names["Sigmoid"].startswith("d") and names["Mul"].startswith("d")


def test_small_integer_constants_enter_the_text_by_value():
    def network(end: int) -> str:
        g = FlatModel()
        starts, ends, axes = (g.op("Constant", value_ints=[v]) for v in (0, end, 1))
        return from_onnx(g.build(g.op("Relu", g.op("Slice", "image", starts, ends, axes))))

    assert network(3) != network(4)
    onnx.checker.check_model(onnx.parser.parse_model(network(3)))


@pytest.mark.parametrize("name", ["nasbench201", "nasbench101", "nats_size"])
def test_the_text_of_a_space_parses_and_inlines_to_the_network(name):
    space = search_spaces.get(name)
    rng = np.random.default_rng(6)
    for _ in range(5):
        model = space.to_onnx(space.sample(rng))
        parsed = onnx.parser.parse_model(from_onnx(model))
        onnx.checker.check_model(parsed)
        assert operator_kinds(parsed) == operator_kinds(model)


def test_an_architecture_may_be_given_by_its_text():
    space = search_spaces.get("nats_size")
    assert from_architecture(space, "8:16:24:32:64") == from_architecture(space, space.parse("8:16:24:32:64"))
    with pytest.raises(ValueError, match="'8:16'"):
        from_architecture(space, "8:16")


def test_a_file_that_is_not_onnx(tmp_path):
    path = tmp_path / "picture.onnx"
    path.write_bytes(b"GIF89a" + bytes(range(256)))
    with pytest.raises(ValueError, match=r"picture\.onnx"):
        from_onnx(path)
    with pytest.raises(FileNotFoundError, match=r"absent\.onnx"):
        from_onnx(tmp_path / "absent.onnx")


def test_all_models_that_cannot_be_read_are_named():
    good = parsed("float[2, 3] x", "y = Relu(x)")
    models = [parsed("float[2, 3] x", f"y = {name}(x)") for name in ("Reluu", "Sigmoidd")]
    assert costed_texts([good]) == [from_onnx(good)]
    with pytest.raises(ValueError, match=r"no operator 'Reluu'.*; .*no operator 'Sigmoidd'"):
        costed_texts([models[0], good, models[1]])


def test_a_file_over_the_limit(tmp_path):
    path = tmp_path / "large.onnx"
    onnx.save(residual_network(2, initialisers=True), path)
    with pytest.raises(ValueError, match="more than the limit of 100"):
        from_onnx(path, limits=Limits(max_bytes=100))


def test_a_graph_without_operators():
    g = FlatModel()
    with pytest.raises(ValueError, match="no operators"):
        from_onnx(g.build("image"))


@pytest.mark.parametrize("condition", [True, None])
def test_control_flow_is_inlined_or_has_a_text_of_its_own(condition):
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["image"], ["y"])],
            "branch",
            [],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
        for kind in ("Relu", "Sigmoid")
    ]
    g = FlatModel()
    if condition is None:
        flag = g.op("Equal", g.op("ReduceSum", "image", keepdims=0), g.op("Constant", value_float=0.0))
    else:
        g.tensors.append(numpy_helper.from_array(np.array(condition), "condition"))
        flag = "condition"
    text = from_onnx(g.build(g.op("If", flag, then_branch=branches[0], else_branch=branches[1])))
    assert ("Relu" in text, "Sigmoid" in text, "If<" in text) == (True, not condition, not condition)
    onnx.checker.check_model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    "body",
    [
        "a = Relu(x) y, z = Split <num_outputs = 2> (a)",
        "s = Constant <value_ints = [-1]> () r = Reshape(i, s) q = Concat <axis = 0> (s, r) z = Relu(x)"
        " y = Reshape(x, q)",
        "a = acme.tools.Magic(x) b = Relu(a) y = acme.tools.Magic <k = 2> (b) z = Relu(y)",
        "".join(f"a{i} = acme.Up(x) b{i} = Relu(a{i}) c{i} = acme.Mix(b{i}, x) " for i in range(4))
        + "y = Sum(c0, c1, c2, c3) z = Relu(y)",
    ],
)
def test_unusual_models_have_valid_text(body):
    imports = '"": 21, "acme": 1, "acme.tools": 1'
    head = f"<ir_version: 10, opset_import: [{imports}]> main (float[4, 4] x, int64 i) =>"
    text = from_onnx(onnx.parser.parse_model(f"{head} (float[A, B] y, float[C, D] z) {{ {body} }}"))
    again = onnx.parser.parse_model(text)
    onnx.checker.check_model(again)
    assert from_onnx(again) == text


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "None is not an ONNX model"),
        (b"", "a bytes is not an ONNX model"),
        (parsed("float[4] x", "y = f.Magic(x)"), "the domain 'f' of Magic cannot be written"),
        (parsed("x", "y = Relu(x)"), "input 'x' has no type"),
    ],
)
def test_models_that_cannot_be_converted(model, message):
    with pytest.raises(ValueError, match=message):
        from_onnx(model)


def nested_functions(depth):
    """A model of functions each of which calls the next one twice."""
    twice = "".join(
        f'<domain: "g", opset_import: ["g": 1, "": 21]> F{i} (x) => (y)'
        f" {{ a = g.F{i - 1}(x) y = g.F{i - 1}(a) }}"
        for i in range(1, depth)
    )
    first = '<domain: "g", opset_import: ["": 21]> F0 (x) => (y) { y = Relu(x) }'
    head = '<ir_version: 10, opset_import: ["": 21, "g": 1]> main (float[4] x) => (float[4] y)'
    return onnx.parser.parse_model(f"{head} {{ y = g.F{depth - 1}(x) }} {first} {twice}")


@pytest.mark.parametrize(
    ("depth", "message"),
    [
        (21, "more nodes than the limit of 20,000"),
        (30, "more nodes than the limit of 20,000"),
        (40, "nested deeper than the limit of 32"),
    ],
)
def test_functions_that_grow_exponentially_are_refused(depth, message):
    with pytest.raises(ValueError, match=message):
        from_onnx(nested_functions(depth))


def test_scalars_of_any_float_type_keep_their_fractions():
    texts = set()
    for value in (0.5, 0.25, 1.7):
        g = FlatModel()
        model = g.build(g.op("Mul", "image", "scale"))
        tensor = onnx.helper.make_tensor("scale", onnx.TensorProto.BFLOAT16, [], [value])
        model.graph.initializer.append(tensor)
        texts.add(read_graph(normalize_model(model))[0].nodes[0].spec.leaves[0].value)
    assert texts == {"0.5", "0.25", "1.703125"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: g.node[0].ClearField("attribute"), "cannot be converted to text"),
        (lambda g: g.node[0].ClearField("output"), "cannot be converted to text"),
        (lambda g: g.node.append(g.node[-1]), "cannot be converted to text"),
        (lambda g: setattr(g.node[-1], "op_type", "NoSuchOp"), "NoSuchOp"),
        (lambda g: g.ClearField("output"), "cannot be converted to text"),
    ],
)
def test_models_that_break_onnx_rules_get_a_clear_error(tmp_path, damage, message):
    g = FlatModel()
    model = g.build(g.op("Relu", g.op("Add", "image", g.op("Constant", value_float=1.0))))
    from_onnx(model)
    damage(model.graph)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=message):
        from_onnx(tmp_path / "m.onnx")


def test_long_network_without_repeats_is_converted():
    rng, g, x = np.random.default_rng(0), FlatModel(), "image"
    for kind in rng.integers(9, size=1000):
        x = g.op(["Relu", "Sigmoid", "Tanh", "Abs", "Exp", "Neg", "Floor", "Ceil", "Sign"][kind], x)
    assert from_onnx(g.build(x)).count("\n") < 1100
