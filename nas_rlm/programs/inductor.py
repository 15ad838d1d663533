"""Triton programs that TorchInductor generates from torch modules, as files without Inductor's launcher.

KernelBook (section 4.1 of the paper) pairs torch modules with programs like these. A CPU is enough to
generate one; a program that is to run on a GPU is generated there, because Inductor adapts it to the GPU.
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

# Variable of a program: for each argument of `call`, the name of a parameter or the index of an input.
ARGUMENTS = "ARGUMENTS"
DEFAULT_COMPUTE_CAPABILITY, WARP_SIZE = 86, 32  # of the GPU on which the paper measured kernels
HEADER = '''"""What TorchInductor makes of {name}."""

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


class _CodeCaptured(Exception):
    """Stops Inductor once it has generated its code, since the code is not run."""


def triton_program(module: nn.Module, inputs: Sequence[Any], name: str = "a module") -> str:
    """Generate the Triton program of a torch module, for inputs with the shapes of the examples.

    Examples:
        >>> print(triton_program(torch.nn.Softmax(-1), [torch.rand(4, 4)]))  # doctest: +SKIP

    Args:
        module: the module, compiled for inference.
        inputs: examples of the inputs of its forward pass, on the device for which the program is generated.
        name: name of the module in the program's docstring.

    Returns:
        A Python file with kernels, a function `call`, which takes a list of tensors, and `ARGUMENTS`, which
        identifies these tensors: names of parameters and buffers, and indices of inputs.

    Raises:
        ValueError: Inductor cannot compile the module as one graph, generates no Triton kernel, or needs
            tensors that the module creates.
    """
    with _compile_for_triton():
        code, arguments = _run_inductor(module, inputs)
        tree = ast.parse(code)
        launches = {
            kernel[0]: _KernelLaunch(kernel[1])
            for statement in tree.body
            if (kernel := _match_kernel(statement))
        }
    if not launches:
        raise ValueError(f"Inductor generates no Triton kernel for {name}: it only calls libraries")
    if any(_is_tensor_constant(statement) for statement in tree.body):
        raise ValueError(f"{name} creates tensors as constants, which the generated code does not contain")
    call = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "call")
    sections = [
        HEADER.format(name=name, arguments=f"{ARGUMENTS} = {tuple(arguments)!r}"),
        *(f"@triton.jit\n{launch.function}" for launch in launches.values()),
        ast.unparse(_LaunchRewriter(launches).visit(call)),
    ]
    return "\n\n".join(sections) + "\n"


def _run_inductor(module: nn.Module, inputs: Sequence[Any]) -> tuple[str, list[str | int]]:
    """Return the code that Inductor generates, and the name or index of each argument of its `call`."""
    from torch._inductor import compile_fx, config
    from torch._inductor.graph import GraphLowering

    generated: list[str] = []
    arguments: list[str | int] = []

    def capture(code: str) -> None:
        generated.append(code)
        raise _CodeCaptured

    def backend(graph: Any, examples: Sequence[Any]) -> Any:
        arguments.extend(_identify_arguments(examples, module, inputs))
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
        stack.enter_context(patch.object(GraphLowering, "save_output_code", staticmethod(capture)))
        stack.enter_context(torch.no_grad())
        try:
            torch.compile(module.eval(), backend=backend, fullgraph=True, dynamic=False)(*inputs)
        except Exception as error:
            if not generated:
                cause = getattr(error, "inner_exception", error)
                message = str(cause).strip().splitlines() or [type(cause).__name__]
                raise ValueError(f"Inductor cannot compile it: {message[0]}") from None
    if not generated:
        raise ValueError("Inductor generates no code for it")
    return generated[0], arguments


def _identify_arguments(
    examples: Sequence[Any], module: nn.Module, inputs: Sequence[Any]
) -> Iterator[str | int]:
    """Yield for each argument of a graph the name of the parameter or buffer, or the index of the input."""
    tensors: list[tuple[str | int, Any]] = [
        *module.named_parameters(),
        *module.named_buffers(),
        *enumerate(inputs),
    ]
    for example in examples:
        if not isinstance(example, Tensor):
            raise ValueError(f"an argument of the graph is {example!r}: expected only tensors")
        name = next((name for name, tensor in tensors if tensor is example), None)
        if name is None:
            pointer = example.data_ptr()
            same_memory = (n for n, t in tensors if isinstance(t, Tensor) and t.data_ptr() == pointer)
            name = next(same_memory, None)
        if name is None:
            raise ValueError("an argument of the graph is neither a parameter nor an input")
        yield name


@contextmanager
def _compile_for_triton() -> Iterator[None]:
    """Within the context, Triton has a target GPU even where there is none, and compiles, not interprets."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    if torch.cuda.is_available():
        with patch.dict(os.environ, {"TRITON_INTERPRET": "0"}):
            yield
        return

    class Driver:
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", DEFAULT_COMPUTE_CAPABILITY, WARP_SIZE)

        def get_current_device(self) -> int:
            return 0

        def get_device_interface(self) -> Any:
            return torch.cuda

    with patch.object(driver, "_active", Driver()), patch.dict(os.environ, {"TRITON_INTERPRET": "0"}):
        yield


def _match_kernel(statement: ast.stmt) -> tuple[str, str] | None:
    """Return the name and the source of the kernel that a statement defines; None for other statements."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(name)],
            value=ast.Call(
                func=ast.Attribute(value=ast.Name("async_compile"), attr="triton"),
                args=[ast.Constant(), ast.Constant(str(source)), *_],
            ),
        ):
            return name, source
    return None


def _is_tensor_constant(statement: ast.stmt) -> bool:
    """Return whether a statement defines a tensor that the module creates."""
    match statement:
        case ast.Assign(targets=[ast.Name(name)], value=ast.Constant()):
            return name.startswith("_tensor_constant")
    return False


class _KernelLaunch:
    """The launch parameters of a kernel: the first configuration of Inductor's heuristics.

    Args:
        source: source of the kernel, with the heuristics as its decorator.
    """

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
        scope: dict[str, Any] = {"__name__": "kernel"}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "kernel.py"
            path.write_text(source)
            scope["__file__"] = str(path)
            exec(compile(source, str(path), "exec"), scope)  # Triton reads the source again, from the file
        self.tuner = scope[function.name]
        self.config = self.tuner.configs[0]
        function.decorator_list = []
        self.function = ast.unparse(function)
        self.parameters = [argument.arg for argument in function.args.args]

    def grid(self, arguments: Sequence[ast.expr]) -> tuple[int, int, int]:
        """Return the number of program instances in each dimension for a call with these arguments."""
        from torch._inductor.runtime.triton_heuristics import GridExpr

        sizes: dict[str, Any] = {
            name: value.value
            for name, value in zip(self.parameters, arguments, strict=False)
            if isinstance(value, ast.Constant)
        }
        return GridExpr.from_meta(self.tuner.inductor_meta, self.config).eval_slow(
            {**self.config.kwargs, **sizes}
        )

    @property
    def options(self) -> dict[str, int]:
        """The constants of the kernel and of its compilation."""
        constants = {k: v for k, v in self.config.kwargs.items() if k in self.parameters}
        return {**constants, "num_warps": self.config.num_warps, "num_stages": self.config.num_stages}


class _LaunchRewriter(ast.NodeTransformer):
    """Replaces launches by Inductor's tuner by plain Triton launches.

    Args:
        launches: launch parameters by the name of the kernel.
    """

    def __init__(self, launches: dict[str, _KernelLaunch]) -> None:
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
