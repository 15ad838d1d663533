import numpy as np
import onnx

import search_spaces
from nas_rlm.text import from_architecture, printer


def test_functions_get_long_names_if_short_ones_collide(monkeypatch):
    space = search_spaces.get("nasbench201")
    architecture = space.parse(
        "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|nor_conv_3x3~1|avg_pool_3x3~2|"
    )
    short = onnx.parser.parse_model(from_architecture(space, architecture))
    monkeypatch.setattr(printer, "_SHORT_HASH", 0)
    long = onnx.parser.parse_model(from_architecture(space, architecture))
    assert len({f.name for f in long.functions}) == len(long.functions) == len(short.functions)
    flat = [onnx.inliner.inline_local_functions(m) for m in (short, long)]
    assert [[n.op_type for n in m.graph.node] for m in flat[:1]] == [[n.op_type for n in flat[1].graph.node]]


def test_layers_have_one_name_in_every_network():
    names = {}
    for name in ("fbnet", "snas", "nds_vanilla", "ofa_resnet50"):
        space = search_spaces.get(name)
        model = onnx.parser.parse_model(from_architecture(space, space.sample(np.random.default_rng(1))))
        for f in model.functions:
            if not f.name.startswith("block"):
                body = str([(n.op_type, list(n.input), list(n.output)) for n in f.node])
                assert names.setdefault(f.name, body) == body
    assert any(n.startswith("ConvBatchNormalizationRelu_") for n in names)
