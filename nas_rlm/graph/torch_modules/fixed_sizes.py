"""Computation of sizes in advance, for inputs of fixed shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from nas_rlm.graph.torch_modules.registry import listed


def fix_sizes(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> fx.GraphModule:
    """Return a module whose sizes are constants: those for inputs of given shapes.

    Sizes that a model computes with tensors need a copy from the memory of the device to that of the host at
    each run, which a CUDA graph cannot record.

    Args:
        module: module of `nas_rlm.graph.torch_module.to_torch`, on the device of the inputs.
        inputs: inputs with the shapes of all later ones.
    """
    recorder = _Recorder(module)
    with torch.inference_mode():
        recorder.run(*inputs)

    def replaced(node: fx.Node) -> Any:
        return recorder.sizes.get(node, node)

    for node in module.graph.nodes:
        if node.op != "output":
            node.args, node.kwargs = map_arg(node.args, replaced), map_arg(node.kwargs, replaced)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


class _Recorder(fx.Interpreter):
    """Runs a module, and keeps the sizes that its nodes compute."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.sizes: dict[fx.Node, list[Any]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.target is listed:
            self.sizes[n] = result
        return result
