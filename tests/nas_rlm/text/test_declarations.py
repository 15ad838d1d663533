import numpy as np
import pytest

import search_spaces
from nas_rlm.text import from_architecture, from_onnx
from nas_rlm.text.declarations import (
    has_other_batch,
    image_size,
    input_batch,
    num_classes,
    reads_images,
    reads_tokens,
    with_input_batch,
)
from tests.nas_rlm.onnx_models import with_batch

HEAD = '<ir_version:10,opset_import:["":21,"f":1]>\nmain({inputs})=>({outputs})\n{{\nv9=Relu(v0)\n}}\n'


def text_of(inputs, outputs):
    return HEAD.format(inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("inputs", "outputs", "batch"),
    [
        ("float[8,3,32,32] v0,float[8,3,3,3] W8_3_3_3", "float[8,10] v9", 8),
        ("int64[4,16] v0,int64[4,16] v1,float[100,8] W100_8", "float[4,16,100] v9,float[2] v10", 4),
        ("float[8,3,32,32] v0,float[5] v1", "float[8] v9", 8),
        ("float[3,32,32] v0", "float[10] v9", None),  # one image
        ("float[100,8,16] v0", "float[8,10] v9", None),  # steps come first
        ("float[8,16] v0,float[4,16] v1", "float[8,10] v9", None),
        ("float[n,16] v0", "float[n,10] v9", None),
        ("float[8] v0", "float[8] v9", None),
    ],
)
def test_the_batch_is_the_first_size_of_inputs_and_outputs(inputs, outputs, batch):
    text = text_of(inputs, outputs)
    assert input_batch(text) == batch
    assert has_other_batch(text, 1) == (batch is not None)
    assert not has_other_batch(text, batch or 7)


@pytest.mark.parametrize("name", ["nasbench201", "ofa_mbv3", "gpt_s"])
def test_a_text_with_another_batch_is_that_of_the_network_with_this_batch(name):
    space = search_spaces.get(name)
    architecture = space.sample(np.random.default_rng(0))
    text, other = from_architecture(space, architecture), space.batch_size + 2
    assert input_batch(text) == space.batch_size
    changed = with_input_batch(text, other)
    assert input_batch(changed) == other
    if name != "gpt_s":  # has sizes of the batch within the network
        assert changed == from_onnx(with_batch(space.to_onnx(architecture), other))
    assert with_input_batch(changed, space.batch_size) == text


def test_a_text_without_a_known_batch_stays_as_it_is():
    text = text_of("float[3,32,32] v0", "float[10] v9")
    assert with_input_batch(text, 8) == text


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "classes"),
    [
        ("float[1,3,224,192] v0", "float[1,1000] v9", (224, 192), 1000),
        ("float[1,4] v0,float16[1,3,64,64] v1", "float[1,10] v9,float[1,7] v10", (64, 64), 10),
        ("float[1,3,h,w] v0", "float[1,5,7,7] v9", None, None),
        ("int64[1,128] v0", "float[1,128,1000] v9", None, None),
    ],
)
def test_sizes_of_images_and_classes(inputs, outputs, size, classes):
    text = text_of(inputs, outputs)
    assert image_size(text) == size
    assert num_classes(text) == classes
    assert reads_images(text) == ("float[1,3" in inputs or "float16[1,3" in inputs)


def test_programs_declare_nothing():
    assert input_batch("def f(x): pass") is image_size("x = 1") is num_classes("") is None
    assert not reads_tokens("int64[1] v0")
