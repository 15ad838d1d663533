"""Networks as torch's exporters write them. The first lines of a failure are the texts' difference."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import search_spaces
from nas_rlm.data import reference_networks
from nas_rlm.data.reference_networks import export_to_onnx
from nas_rlm.graph.onnx_graphs.loading import inline_functions
from nas_rlm.graph.reader import read_graph
from nas_rlm.graph.rewriting.normalization import normalize_model
from nas_rlm.graph.torch_export import operators_read_once
from nas_rlm.text import from_architecture, from_onnx
from tests.nas_rlm.graph import torch_networks
from tests.nas_rlm.onnx_models import FlatModel

onnxscript = pytest.importorskip(
    "onnxscript", reason="onnxscript, which torch exports with, is not installed"
)


IMAGE = torch.zeros(1, 3, 32, 32)
CELLS = search_spaces.get("nasbench201")
ALL_OPERATORS = CELLS.parse(
    "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|"
)


def operators_of(cell):
    """The names of a cell's operators, in the order of its notation."""
    return [edge.split("~")[0] for node in str(cell).split("+") for edge in node.strip("|").split("|")]


@pytest.mark.parametrize("exporter", reference_networks.EXPORTERS)
def test_a_nasbench201_network_from_torch_has_our_text(exporter):
    operators = operators_of(ALL_OPERATORS)
    assert len(set(operators)) == 5
    model = export_to_onnx(torch_networks.Network201(operators), IMAGE, exporter, optimize=False)
    assert from_onnx(model) == from_architecture(CELLS, ALL_OPERATORS)


def test_a_nasbench101_network_from_torch_has_our_text():
    space = search_spaces.get("nasbench101")
    matrix = "0110100011000100000100000"
    ops = '["input", "conv3x3-bn-relu", "maxpool3x3", "conv1x1-bn-relu", "output"]'
    cell = space.parse(f'{{"adjacency": "{matrix}", "ops": {ops}}}')
    for exporter in reference_networks.EXPORTERS:
        model = export_to_onnx(torch_networks.Network101(), IMAGE, exporter, optimize=False)
        assert from_onnx(model) == from_architecture(space, cell)


def test_a_darts_network_from_torch_has_our_text():
    space = search_spaces.get("nds_darts")
    genome = space.sample(np.random.default_rng(0))
    assert len({operator for cell in (genome.normal, genome.reduce) for operator, _ in cell.edges}) == 8
    genotype = type(genome)(genome.normal, genome.reduce, 4, 16)
    expected = from_architecture(space, genotype)
    model = export_to_onnx(torch_networks.NetworkDarts(genotype), IMAGE, optimize=False)
    assert from_onnx(model) == expected


def test_a_mobilenet_v3_from_torch_has_our_text():
    space = search_spaces.get("ofa_mbv3")
    genome = space.sample(np.random.default_rng(0))
    kernels, expansions, depths, (side,) = (list(map(int, genome[name])) for name in ("ks", "e", "d", "r"))
    module = torch_networks.MobileNetV3(kernels, expansions, depths)
    model = export_to_onnx(module, torch.zeros(1, 3, side, side), optimize=False)
    assert from_onnx(model) == from_architecture(space, genome)


def shuffled(model, rng):
    """The same model with other names and its nodes in another topological order."""
    flat = inline_functions(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(flat)
    graph = copy.graph
    names = {n for node in graph.node for n in (*node.input, *node.output) if n}
    names |= {t.name for t in graph.initializer} | {i.name for i in graph.input}
    renamed = {n: f"name_{i}" for n, i in zip(sorted(names), rng.permutation(len(names)), strict=True)}
    known = {""} | {renamed[i.name] for i in graph.input} | {renamed[t.name] for t in graph.initializer}
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        for value in part:
            value.name = renamed.get(value.name, value.name)
    waiting = [graph.node[i] for i in rng.permutation(len(graph.node))]
    for node in waiting:
        node.input[:] = [renamed.get(n, n) for n in node.input]
        node.output[:] = [renamed.get(n, n) for n in node.output]
        node.name = ""
    ordered = []
    while waiting:
        ready = [n for n in waiting if known.issuperset(n.input)]
        known.update(o for n in ready for o in n.output)
        waiting = [n for n in waiting if not known.issuperset(n.input) or n not in ready]
        ordered += ready
    del graph.node[:]
    graph.node.extend(ordered)
    return copy


# The others have operators of these. Exports of whole networks take long, and repeat what fewer layers have.
FEWER_LAYERS = {
    "regnet_y": {"depths": [1, 2, 4, 1]},
    "mobilenet_v2": {},
    "convnext": {"depths": [2, 2, 3, 2]},
    "vit": {"num_hidden_layers": 4},
    "gpt2": {"n_layer": 4},
}
EXPORTED_AGAIN = "convnext"
FOREIGN = [
    pytest.param(name, marks=() if name in FEWER_LAYERS else pytest.mark.long)
    for name in reference_networks.NETWORKS
]


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_networks_have_one_text(name, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    kind, settings = reference_networks.NETWORKS[name]
    smaller = (kind, {**settings, **FEWER_LAYERS.get(name, {})})
    monkeypatch.setitem(reference_networks.NETWORKS, name, smaller)
    models = dict(reference_networks.export_all(name))
    for model in models.values():
        onnx.checker.check_model(onnx.parser.parse_model(from_onnx(model)))
    model = models["dynamo"]
    text = from_onnx(model)
    if name == EXPORTED_AGAIN:
        assert from_onnx(export_to_onnx(*reference_networks.build_network(name))) == text
    for seed in range(2):
        assert from_onnx(shuffled(model, np.random.default_rng(seed))) == text
    assert from_onnx(onnx.parser.parse_model(text)) == text
    flat = len(read_graph(normalize_model(model))[0].nodes)
    assert text.count("=f.") > 3
    assert text.count("\n") < 1.5 * flat


def test_operator_sets_do_not_matter():
    g = FlatModel(initialisers=True)
    out = g.conv_bn_relu("image", 8, 8)
    texts = {from_onnx(g.build(out, opset=opset)) for opset in (13, 15, 17, 19, 21)}
    assert len(texts) == 1


def test_axes_as_attribute_or_input_give_one_text():
    old, new = FlatModel(), FlatModel()
    a = old.op("ReduceSum", "image", axes=[1], keepdims=1)
    new.tensors.append(numpy_helper.from_array(np.array([1]), "axes"))
    b = new.op("ReduceSum", "image", "axes", keepdims=1)
    assert from_onnx(old.build(a, opset=11)) == from_onnx(new.build(b, opset=13))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_mean_over_positions_is_a_pool(keepdims):
    g = FlatModel()
    g.tensors.append(numpy_helper.from_array(np.array([-1, 2]), "axes"))
    text = from_onnx(g.build(g.op("ReduceMean", "image", "axes", keepdims=keepdims)))
    assert "ReduceMean" not in text
    assert ("Flatten" in text) == (not keepdims)


def test_operators_without_effect_are_dropped():
    plain, wordy = FlatModel(), FlatModel()
    x = plain.op("Relu", "image")
    expected = from_onnx(plain.build(plain.op("Sigmoid", x)))
    wordy.tensors += [
        numpy_helper.from_array(np.array(0.0, np.float32), "zero"),
        numpy_helper.from_array(np.array(1.0, np.float32), "one"),
        numpy_helper.from_array(np.zeros(8, np.int64), "pads"),
        numpy_helper.from_array(np.array([1, 8, 16, 16]), "same"),
    ]
    x = wordy.op("Pad", wordy.op("Dropout", wordy.op("Identity", "image")), "pads")
    x = wordy.op("Relu", wordy.op("Add", wordy.op("Mul", x, "one"), "zero"))
    x = wordy.op("Cast", wordy.op("Reshape", x, "same"), to=TensorProto.FLOAT)
    assert from_onnx(wordy.build(wordy.op("Sigmoid", x))) == expected


def test_a_bias_that_is_zero_by_chance_stays():
    """Also where an exporter shares equal weights by Identity."""

    def network(value, shared):
        g = FlatModel()
        g.tensors.append(numpy_helper.from_array(np.full(8, value, np.float32), "bias"))
        bias = g.op("Identity", "bias") if shared else "bias"
        return from_onnx(g.build(g.op("Conv", "image", g.weight(8, 8, 3, 3), bias)))

    assert len({network(value, shared) for value in (0.0, 1.0) for shared in (True, False)}) == 1


def test_pad_before_a_convolution_is_merged():
    plain, padded = FlatModel(), FlatModel()
    expected = from_onnx(plain.build(plain.op("Conv", "image", plain.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])))
    padded.tensors.append(numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"))
    x = padded.op("Conv", padded.op("Pad", "image", "pads"), padded.weight(8, 8, 3, 3))
    assert from_onnx(padded.build(x)) == expected


def test_computed_shapes_are_folded():
    def network(g, shape):
        back = numpy_helper.from_array(np.array([1, 8, 16, 16]), "back")
        g.tensors.append(back)
        return from_onnx(g.build(g.op("Reshape", g.op("Relu", g.op("Reshape", "image", shape)), "back")))

    fixed, computed = FlatModel(), FlatModel()
    fixed.tensors.append(numpy_helper.from_array(np.array([8, -1]), "shape"))
    computed.tensors += [
        numpy_helper.from_array(np.array([1]), "one"),
        numpy_helper.from_array(np.array([-1]), "rest"),
    ]
    channels = computed.op("Gather", computed.op("Shape", "image"), "one")
    assert network(computed, computed.op("Concat", channels, "rest", axis=0)) == network(fixed, "shape")


def text_of(body, inputs="float[1,4,9,9] x", outputs="float[N,M,P,Q] y", imports=""):
    """The text of a model in ONNX's own syntax."""
    head = f'<ir_version: 10, opset_import: ["": 21{imports}]> main ({inputs}) => ({outputs})'
    text = from_onnx(onnx.parser.parse_model(f"{head} {{ {body} }}"))
    onnx.checker.check_model(onnx.parser.parse_model(text))
    return text


@pytest.mark.parametrize("exporter", reference_networks.EXPORTERS)
def test_open_batch_dimension_is_set_to_one(exporter, tmp_path):
    module = torch_networks.Network201(operators_of(ALL_OPERATORS), cells_per_stage=1).eval()
    images, path = torch.zeros(2, 3, 32, 32), tmp_path / "m.onnx"
    if exporter == "dynamo":
        shapes = ({0: torch.export.Dim("batch")},)
        with operators_read_once():
            torch.onnx.export(module, (images,), path, dynamo=True, optimize=False, dynamic_shapes=shapes)
    else:
        kept = {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE}
        torch.onnx.export(
            module, (images,), path, input_names=["x"], dynamic_axes={"x": {0: "batch"}}, **kept
        )
    assert from_onnx(path) == from_onnx(export_to_onnx(module, IMAGE, "torchscript"))


def test_a_transposition_of_unknown_rank_stays():
    imports = ', "acme": 1'
    plain = text_of("a = acme.Magic(x) y = Relu(a)", imports=imports)
    assert text_of("a = acme.Magic(x) b = Transpose(a) y = Relu(b)", imports=imports) != plain


def test_auto_pad_is_replaced_by_explicit_pads():
    inputs = "float[1,4,9,9] x, float[4,4,2,2] w"
    upper = text_of('y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)', inputs)
    assert upper == text_of("y = Conv <pads = [0, 0, 1, 1], strides = [2, 2]> (x, w)", inputs)
    lower = text_of('y = Conv <auto_pad = "SAME_LOWER"> (x, w)', inputs)
    assert lower == text_of("y = Conv <pads = [1, 1, 0, 0]> (x, w)", inputs)
    assert text_of('y = Conv <auto_pad = "VALID"> (x, w)', inputs) == text_of("y = Conv(x, w)", inputs)
    pool = 'y = AveragePool <kernel_shape = [3, 3], auto_pad = "SAME_UPPER"'
    features_of_architecture = text_of(f"{pool}, count_include_pad = 1> (x)")
    assert features_of_architecture != text_of(f"{pool}> (x)")
    assert "pads=[1,1,1,1]" in features_of_architecture


def test_small_external_integers_are_loaded(tmp_path):
    g = FlatModel()
    g.tensors.append(numpy_helper.from_array(np.array([2, -1]), "shape"))
    model = g.build(g.op("Relu", g.op("Reshape", "image", "shape")))
    expected = from_onnx(model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="s.bin", size_threshold=0)
    assert from_onnx(tmp_path / "m.onnx") == expected
    (tmp_path / "s.bin").unlink()
    with pytest.raises(ValueError, match="has external data for 'shape'"):
        from_onnx(tmp_path / "m.onnx")


def test_external_weights_are_read_by_shape(tmp_path):
    g = FlatModel(initialisers=True)
    model = g.build(g.conv_bn_relu("image", 8, 8))
    expected = from_onnx(model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert from_onnx(tmp_path / "m.onnx") == expected
    (tmp_path / "w.bin").unlink()
    assert from_onnx(tmp_path / "m.onnx") == expected


def test_model_is_not_changed():
    g = FlatModel(initialisers=True)
    model = g.build(g.conv_bn_relu("image", 8, 8), opset=15)
    before = model.SerializeToString(deterministic=True)
    from_onnx(model)
    assert model.SerializeToString(deterministic=True) == before


def test_unknown_operator_set_is_refused():
    g = FlatModel()
    model = g.build(g.op("Relu", "image"))
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 9999))
    with pytest.raises(ValueError, match="operator set 9999: expected 6 to"):
        from_onnx(model)
