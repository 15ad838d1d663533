import pytest

from nas_rlm.programs.triton_inputs import contradiction

KERNEL = """# input: [[65536], [64]]
import torch, triton

BLOCK, SIZE = 1024, 2**16


@triton.jit
def add(x_ptr, BLOCK):
    pass


def get_inputs():
    {}
"""


@pytest.mark.parametrize(
    ("body", "created"),
    [
        ("return [torch.rand(4096)]", "[[4096]]"),
        ("return [torch.rand([16, 16], device='cuda') for _ in range(2)]", "[[16, 16], [16, 16]]"),
        ("return [torch.randn((2 * SIZE, 3)).cuda().half(), 0.5]", "[[131072, 3]]"),
        ("x = 2 * torch.zeros(8, SIZE // 2, dtype=torch.float16)\n    return x, torch.ones(3)", None),
        ("return [torch.full((4, 4), 1.0), torch.randint(0, 9, (8,))]", "[[4, 4], [8]]"),
        ("sizes = [8, 16]\n    return [torch.empty(n) for n in sizes]", "[[8], [16]]"),
        ("return [torch.rand(size=(7, BLOCK))]", "[[7, 1024]]"),
    ],
)
def test_the_inputs_of_a_kernel_are_compared_with_its_first_line(body, created):
    found = contradiction(KERNEL.format(body))
    expected = created or "[[8, 32768], [3]]"
    assert found == (
        f"its first line has the input sizes [[65536], [64]], and its get_inputs() has {expected}"
    )


@pytest.mark.parametrize(
    "body",
    [
        "return [torch.rand(SIZE), torch.rand(64)]",
        "return [torch.rand(256, 256)]",  # as many elements
        "return [torch.rand(size_of_the_machine())]",
        "return make(4096)",
        "for SIZE in (4, 8): pass\n    return [torch.rand(SIZE)]",
        "pass",
        "return",
    ],
)
def test_inputs_that_agree_or_are_not_said_are_no_contradiction(body):
    assert contradiction(KERNEL.format(body)) == ""


def test_only_kernels_with_a_first_line_of_sizes_are_compared():
    kernel = KERNEL.format("return [torch.rand(4096)]")
    assert contradiction(kernel)
    assert contradiction(kernel.partition("\n")[2]) == ""
    assert contradiction(kernel.replace("@triton.jit", "")) == ""
    assert contradiction(kernel + "x = (") == ""
