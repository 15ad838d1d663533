"""Triton programs that TorchInductor makes of torch modules, as a file that needs nothing of Inductor to run.

Source: KernelBook, section 4.1 of the paper, pairs torch modules with such programs. A processor is enough to
make one; what runs on a GPU is made where one is, since Inductor goes by its kind.
"""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

ARGUMENTS = "ARGUMENTS"  # in a program: of each argument of `call` the parameter's name or the input's number
HEAD = '''"""What TorchInductor makes of {name}."""

import torch
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice
from torch._inductor.runtime.triton_helpers import math as tl_math
from torch._inductor.select_algorithm import extern_kernels

aten = torch.ops.aten
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor

{arguments}
'''


class _Made(Exception):
    """Inductor has written its program, and need not run it."""


def triton_program(module: nn.Module, inputs: Sequence[Any], name: str = "a module") -> str:
    """The Triton program of a module, for inputs of these shapes.

    >>> print(triton_program(torch.nn.Softmax(-1), [torch.rand(4, 4)]))  # doctest: +SKIP

    Args:
        module: in inference.
        inputs: of its forward pass, on the device for which the program is made.
        name: what the program's docstring calls the module.

    Returns:
        A Python file with kernels, `call`, which takes a list of tensors, and `ARGUMENTS`, which tells what
        these are: names of parameters and buffers, and numbers of inputs.

    Raises:
        ValueError: Inductor cannot compile it as one graph, makes no Triton of it, or needs tensors for it
            that the module makes.
    """
    with _compiling():
        written, arguments = _compiled(module, inputs)
        tree = ast.parse(written)
        launches = {found[0]: _Launch(found[1]) for node in tree.body if (found := _kernel(node))}
    if not launches:
        raise ValueError(f"Inductor makes no Triton kernel of {name}: it calls libraries alone")
    parts = [HEAD.format(name=name, arguments=f"{ARGUMENTS} = {tuple(arguments)!r}")]
    parts += [f"@triton.jit\n{launch.function}" for launch in launches.values()]
    if any(_is_constant(node) for node in tree.body):
        raise ValueError(f"{name} makes tensors as constants, which Inductor does not write down")
    call = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "call")
    parts.append(ast.unparse(_Plain(launches).visit(call)))
    return "\n\n".join(parts) + "\n"


def _compiled(module: nn.Module, inputs: Sequence[Any]) -> tuple[str, list[str | int]]:
    """What Inductor writes, and what the arguments of its `call` are."""
    from torch._inductor import compile_fx, config
    from torch._inductor.graph import GraphLowering

    written: list[str] = []
    arguments: list[str | int] = []

    def keep(code: str) -> None:
        written.append(code)
        raise _Made

    def backend(graph: Any, examples: Sequence[Any]) -> Any:
        arguments.extend(_named(examples, module, inputs))
        return compile_fx.compile_fx(graph, examples)

    torch._dynamo.reset()
    settings = {
        "cpu_backend": "triton",
        "graph_partition": False,
        "compile_threads": 1,
        "fx_graph_cache": False,
    }
    with ExitStack() as stack:
        stack.enter_context(config.patch(settings))
        stack.enter_context(patch.object(GraphLowering, "save_output_code", staticmethod(keep)))
        stack.enter_context(torch.no_grad())
        try:
            torch.compile(module.eval(), backend=backend, fullgraph=True, dynamic=False)(*inputs)
        except Exception as error:
            if not written:
                reason = getattr(error, "inner_exception", error)
                said = str(reason).strip().splitlines() or [type(reason).__name__]
                raise ValueError(f"Inductor cannot compile it: {said[0]}") from None
    if not written:
        raise ValueError("Inductor makes nothing of it")
    return written[0], arguments


def _named(examples: Sequence[Any], module: nn.Module, inputs: Sequence[Any]) -> Iterator[str | int]:
    """Which parameters, buffers and inputs a graph's arguments are."""
    held = [*module.named_parameters(), *module.named_buffers()]
    known: list[tuple[str | int, Any]] = [*held, *enumerate(inputs)]
    for example in examples:
        if not isinstance(example, Tensor):
            raise ValueError(f"an argument of the graph is {example!r}: expected tensors alone")
        name = next((name for name, one in known if one is example), None)
        if name is None:
            name = next(
                (n for n, one in known if isinstance(one, Tensor) and one.data_ptr() == example.data_ptr()),
                None,
            )
        if name is None:
            raise ValueError("an argument of the graph is neither parameter nor input")
        yield name


@contextmanager
def _compiling() -> Iterator[None]:
    """A driver for Triton to ask for its target, and its compiler instead of its interpreter."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    if torch.cuda.is_available():
        with patch.dict(os.environ, {"TRITON_INTERPRET": "0"}):
            yield
        return

    class Driver:  # of a GPU of the kind that the paper's kernels ran on
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 86, 32)

        def get_current_device(self) -> int:
            return 0

        def get_device_interface(self) -> Any:
            return torch.cuda

    with patch.object(driver, "_active", Driver()), patch.dict(os.environ, {"TRITON_INTERPRET": "0"}):
        yield


def _kernel(node: ast.stmt) -> tuple[str, str] | None:
    """The name and the source of a kernel, where a statement holds one."""
    match node:
        case ast.Assign(
            targets=[ast.Name(name)],
            value=ast.Call(
                func=ast.Attribute(value=ast.Name("async_compile"), attr="triton"),
                args=[ast.Constant(), ast.Constant(str(source)), *_],
            ),
        ):
            return name, source
    return None


def _is_constant(node: ast.stmt) -> bool:
    """Whether it is a tensor that the module holds as a constant."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=ast.Constant()):
            return name.startswith("_tensor_constant")
    return False


class _Launch:
    """How a kernel is launched: what Inductor's heuristics take first.

    Args:
        source: of a kernel, with the heuristics as its decorator.
    """

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
        scope: dict[str, Any] = {"__name__": "kernel"}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.py"
            path.write_text(source)
            scope["__file__"] = str(path)
            exec(compile(source, str(path), "exec"), scope)  # Triton reads the source again, from the file
        self.tuner = scope[function.name]
        self.config = self.tuner.configs[0]
        function.decorator_list = []
        self.function = ast.unparse(function)
        self.parameters = [one.arg for one in function.args.args]

    def grid(self, arguments: Sequence[ast.expr]) -> tuple[int, int, int]:
        """How many programs, for a call with such arguments."""
        from torch._inductor.runtime.triton_heuristics import GridExpr

        sizes: dict[str, Any] = {
            name: value.value
            for name, value in zip(self.parameters, arguments, strict=False)
            if isinstance(value, ast.Constant)
        }
        found = GridExpr.from_meta(self.tuner.inductor_meta, self.config).eval_slow(
            {**self.config.kwargs, **sizes}
        )
        return found

    @property
    def options(self) -> dict[str, int]:
        """The constants of the kernel, and of its compilation."""
        taken = {k: v for k, v in self.config.kwargs.items() if k in self.parameters}
        return {**taken, "num_warps": self.config.num_warps, "num_stages": self.config.num_stages}


class _Plain(ast.NodeTransformer):
    """Launches as Triton's own, without Inductor's."""

    def __init__(self, launches: dict[str, _Launch]) -> None:
        self.launches = launches

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(value=ast.Name(name), attr="run") if name in self.launches:
                launch = self.launches[name]
                grid = ast.Tuple([ast.Constant(size) for size in launch.grid(node.args)], ast.Load())
                options = [ast.keyword(k, ast.Constant(v)) for k, v in launch.options.items()]
                kernel = ast.Subscript(ast.Name(name, ast.Load()), grid, ast.Load())
                return ast.fix_missing_locations(ast.Call(kernel, node.args, options))
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        match node:
            case ast.Assign(value=ast.Call(func=ast.Name("get_raw_stream"))):
                return None
        return self.generic_visit(node)
