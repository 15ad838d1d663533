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
        "return [torch.rand(8), [torch.rand(SIZE)]]",
        "x = torch.rand(8)\n    x.resize_(SIZE)\n    return [x]",
    ],
)
def test_inputs_that_agree_or_are_not_said_are_no_contradiction(body):
    assert contradiction(KERNEL.format(body)) == ""


@pytest.mark.parametrize(
    "body",
    [
        "if torch.cuda.is_available():\n        return [torch.rand(SIZE)]\n    return [torch.rand(8)]",
        "try:\n        return make()\n    except OSError:\n        pass\n    return [torch.rand(8)]",
    ],
)
def test_a_function_with_several_results_is_no_contradiction(body):
    assert contradiction(KERNEL.format(body)) == ""


@pytest.mark.parametrize(
    "change",
    [
        "x.append(torch.rand(SIZE))",
        "x[0] = torch.rand(SIZE)",
        "x[0], n = torch.rand(SIZE), 1",
        "same = x\n    same.append(torch.rand(SIZE))",
        "enlarge(x)",
        "count = enlarge(x)",
        "for tensor in x: tensor.resize_(SIZE)",
    ],
)
def test_a_list_that_is_changed_is_not_said(change):
    assert contradiction(KERNEL.format("x = [torch.rand(8)]\n    return x"))
    assert contradiction(KERNEL.format(f"x = [torch.rand(8)]\n    {change}\n    return x")) == ""


@pytest.mark.parametrize(
    "change",
    [
        "from sizes import *",
        "from sizes import BLOCK",
        "import sizes as BLOCK",
        "del BLOCK",
        "def BLOCK(): pass",
        "def set_size():\n    global BLOCK\n    BLOCK = 65536",
        "if torch.cuda.is_available(): BLOCK = 65536",
    ],
)
def test_a_name_that_may_have_another_value_is_not_said(change):
    kernel = KERNEL.format("return [torch.rand(BLOCK)]")
    assert contradiction(kernel)
    assert contradiction(f"{kernel}\n{change}\n") == ""


@pytest.mark.parametrize(
    ("start", "other"),
    [
        ("def get_inputs(BLOCK=65536)", ""),
        ("@several\ndef get_inputs()", ""),
        ("async def get_inputs()", ""),
        ("def get_inputs()", "get_inputs = make"),
        ("def get_inputs()", "if make:\n    def get_inputs(): return make()"),
        ("def get_inputs()", "from make import get_inputs"),
    ],
)
def test_another_function_may_create_the_inputs(start, other):
    kernel = KERNEL.format("return [torch.rand(BLOCK)]")
    assert contradiction(kernel.replace("def get_inputs()", start) + other) == ""


@pytest.mark.parametrize(
    "body",
    [
        "return [torch.rand(n) for n in range(65537)]",  # the last one is the largest
        "return [torch.rand(2 ** 99 // 2 ** 83)]",
        "x = 2**63\n" + "    x = x**63\n" * 9 + "    return [torch.rand(x)]",
        f"return [torch.rand({'1 + ' * 3000} 1)]",
        f"return {'[' * 9}torch.rand(8){' for _ in range(1000)]' * 9}",
    ],
)
def test_values_that_take_long_are_not_said(body):
    assert contradiction(KERNEL.format(body)) == ""


def test_numbers_in_another_comment_are_no_sizes():
    kernel = KERNEL.format("return [torch.rand(4096)]")
    assert contradiction(kernel.replace("# input: [[65536], [64]]", "# Input (65536,)"))
    assert contradiction(kernel.replace("# input: [[65536], [64]]", "# Copyright (2024)")) == ""


def test_only_kernels_with_a_first_line_of_sizes_are_compared():
    kernel = KERNEL.format("return [torch.rand(4096)]")
    assert contradiction(kernel)
    assert contradiction(kernel.partition("\n")[2]) == ""
    assert contradiction(kernel.replace("@triton.jit", "")) == ""
    assert contradiction(kernel + "x = (") == ""
