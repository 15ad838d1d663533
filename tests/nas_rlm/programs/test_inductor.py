import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="needs triton")

from nas_rlm.programs.inductor import triton_program


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x, y):
        return torch.relu(self.norm(self.linear(x))) + y, y.sum(1)


def test_a_program_has_kernels_and_the_arguments_of_its_call():
    written = triton_program(Small(), [torch.rand(5, 4), torch.rand(5, 6)], "Small")
    scope = {}
    for line in written.splitlines():
        if line.startswith("ARGUMENTS"):
            exec(line, scope)
    assert sorted(map(str, scope["ARGUMENTS"])) == sorted(
        [
            *("0", "1", "linear.weight", "linear.bias"),
            *("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"),
        ]
    )
    assert written.count("@triton.jit") == 2
    assert written.count("[1, 1, 1](") == 2
    assert "triton_heuristics" not in written and "get_raw_stream" not in written
    assert "async_compile" not in written
    compile(written, "written", "exec")


def test_generated_programs_are_reproducible():
    first, again = (triton_program(nn.Softmax(-1), [torch.rand(3, 7)]) for _ in range(2))
    assert first == again


class Branches(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("module", "message"),
    [(nn.Linear(4, 4), "only calls libraries"), (Branches(), "cannot compile it")],
)
def test_modules_without_kernels_or_with_branches_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        triton_program(module, [torch.rand(3, 4)])
