"""Worker process that runs Triton kernels, on a GPU or in Triton's interpreter.

    python -m nas_rlm.programs.triton_worker

An invalid memory access of a kernel makes the process unusable, so each kernel gets a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from nas_rlm.devices.serving import Handlers, serve_on_stdio
from nas_rlm.programs.sandbox import die_with_parent

WARMUP_SECONDS = 0.2
MIN_RUNS_PER_WINDOW = 20  # on a GPU
WINDOW_MARGIN = 1.2  # factor on the number of runs that is estimated to fill a window
MAX_CALL_ORDERS = 64
TOLERANCE = 1e-2  # absolute and relative, of outputs; tensor cores round
WEIGHT_SEED, INPUT_SEED = 0, 1
# A description of how a program is called, and a function that prepares such a call.
Candidate = tuple[str, Callable[[], Callable[[], Any]]]


class Worker:
    """Loads and times kernels; the public methods are request handlers."""

    def __init__(self) -> None:
        self.kernels: dict[int, Callable[[], Any]] = {}
        self.device_type = "cpu"

    def open(self, interpret: bool) -> dict[str, Any]:
        """Select the GPU or the interpreter.

        Args:
            interpret: use Triton's interpreter.

        Returns:
            `device`: name of the device; and the versions of Triton, torch and CUDA.

        Raises:
            ValueError: there is no GPU, and `interpret` is false.
        """
        if not interpret and not torch.cuda.is_available():
            raise ValueError("there is no GPU: --interpret checks kernels without one")
        if interpret:
            os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported
        import triton

        versions = {"triton": triton.__version__, "torch": torch.__version__}
        _restore_grid_helper()
        if interpret:
            from nas_rlm.programs.triton_interpreter import patch_interpreter, replace_gpu_functions

            patch_interpreter()
            replace_gpu_functions()
            return {"device": "triton-interpreter", **versions}
        self.device_type = "cuda"
        name = torch.cuda.get_device_name().lower().replace(" ", "-")
        return {"device": name, "cuda": torch.version.cuda, **versions}

    def generate(self, content: bytes) -> dict[str, Any]:
        """Generate the Triton program of a torch module, see `nas_rlm.programs.inductor`.

        Args:
            content: JSON with `source`, a Python file, and `entry`, the name of the module.

        Returns:
            `source`: the program.
        """
        from nas_rlm.programs.inductor import triton_program

        kernel = json.loads(content)
        scope = _execute_file(kernel["source"], "module")
        module, name = self._build_module(scope, kernel["entry"])
        return {"source": triton_program(module, self._make_inputs(scope), name)}

    def load(self, number: int, content: bytes) -> dict[str, Any]:
        """Load a program, and find out how to call it; its first call compiles it.

        Args:
            number: number that identifies the kernel in later requests.
            content: JSON with the fields of `nas_rlm.programs.triton_runner.Kernel`.

        Returns:
            `order`: order of its arguments; `matches`: whether its outputs equal those of the torch module,
            None without a module.
        """
        kernel = json.loads(content)
        scope = _execute_file(kernel["source"], "kernel")
        input_scope = _execute_file(kernel["module"], "module") if kernel["module"] else scope
        inputs, module, expected = self._make_inputs(input_scope), None, None
        if kernel["module"]:
            module, _ = self._build_module(input_scope, kernel["entry"])
            expected = [tensor.clone() for tensor in _tensors(_call(module, _copy(inputs)))]
        candidates = self._candidates(scope, input_scope, module, inputs, kernel["entry"])
        order, call, matches = self._select_candidate(candidates, expected)
        self.kernels[number] = call
        return {"order": order, "matches": matches}

    def warm_up(self, number: int) -> dict[str, Any]:
        """Run a kernel for a while, until the clock rate of the GPU is that of its windows.

        Args:
            number: number of the kernel.
        """
        call, start = self.kernels[number], time.perf_counter()
        while time.perf_counter() - start < WARMUP_SECONDS:
            call()
        if self.device_type == "cuda":
            torch.cuda.synchronize()
        return {}

    def window(self, number: int, seconds: float) -> dict[str, Any]:
        """Run a kernel repeatedly, increasing the number of runs until they fill the window.

        Args:
            number: number of the kernel.
            seconds: minimum length of the window.

        Returns:
            `time`: mean duration of a run in ms; `runs`: number of runs.
        """
        call, runs = self.kernels[number], MIN_RUNS_PER_WINDOW if self.device_type == "cuda" else 1
        while (elapsed := self._time_runs(call, runs)) < seconds:
            estimate = int(WINDOW_MARGIN * runs * seconds / max(elapsed, 1e-6)) if elapsed > 0 else 0
            runs = max(2 * runs, estimate)
        return {"time": 1e3 * elapsed / runs, "runs": runs}

    def _time_runs(self, call: Callable[[], Any], runs: int) -> float:
        """Return the total duration of a number of runs in seconds."""
        if self.device_type == "cpu":
            start = time.perf_counter()
            for _ in range(runs):
                call()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(runs):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3

    def _build_module(self, scope: dict[str, Any], entry: str) -> tuple[nn.Module, str]:
        """Return the torch module of a file and its name: the entry, or else the last one defined there."""
        classes = {name: value for name, value in scope.items() if _is_module_class(value)}
        defined_here = [name for name, cls in classes.items() if cls.__module__ == scope["__name__"]]
        name = entry or (defined_here[-1] if defined_here else "")
        if name not in classes:
            missing = f"torch module {name!r}" if name else "call(args), and no torch module"
            raise ValueError(f"there is no {missing}: expected one of them, and get_inputs()")
        return self._instantiate(classes[name], scope), name

    def _instantiate(self, cls: type[nn.Module], scope: dict[str, Any]) -> nn.Module:
        """Return a module with the arguments of the file's `get_init_inputs` and fixed random weights."""
        arguments = scope["get_init_inputs"]() if "get_init_inputs" in scope else []
        match arguments:
            case [list() | tuple() as args, dict() as kwargs]:
                pass
            case _:
                args, kwargs = arguments, {}
        torch.manual_seed(WEIGHT_SEED)
        return cls(*args, **kwargs).to(self.device_type).eval()

    def _make_inputs(self, scope: dict[str, Any]) -> list[Any]:
        """Return the inputs of a file's `get_inputs` on the device, with a fixed seed."""
        if "get_inputs" not in scope:
            raise ValueError("there is no get_inputs(): expected a function that returns a list of tensors")
        torch.manual_seed(INPUT_SEED)
        return [x.to(self.device_type) if isinstance(x, Tensor) else x for x in scope["get_inputs"]()]

    def _candidates(
        self,
        scope: dict[str, Any],
        input_scope: dict[str, Any],
        module: nn.Module | None,
        inputs: list[Any],
        entry: str,
    ) -> Iterator[Candidate]:
        """Yield candidate calls of a program, each with a description, in the order in which to try them.

        Args:
            scope: names that the program defines.
            input_scope: names of the file with the inputs.
            module: the equivalent torch module, if there is one.
            inputs: inputs of the module, or of the program's function.
            entry: name of the module or function.
        """
        function = scope.get(entry)
        if callable(function) and not _is_module_class(function):
            yield "inputs", lambda: partial(_call, function, _copy(inputs))
        for name in (f"{entry}New", "ModelNew"):
            cls = scope.get(name)
            if _is_module_class(cls):
                yield name, partial(self._prepare_module, cls, input_scope, module, inputs)
        if callable(call := scope.get("call")):
            named = chain(module.named_parameters(), module.named_buffers()) if module is not None else ()
            weights = {name: value.data for name, value in named}
            for order, arguments in _argument_orders(scope.get("ARGUMENTS"), list(weights), len(inputs)):
                yield order, partial(_prepare_list_call, call, arguments, weights, inputs)

    def _prepare_module(
        self,
        cls: type[nn.Module],
        input_scope: dict[str, Any],
        module: nn.Module | None,
        inputs: list[Any],
    ) -> Callable[[], Any]:
        """Return the call of a module with Triton kernels, which gets the weights of the torch module."""
        instance = self._instantiate(cls, input_scope)
        if module is not None:
            instance.load_state_dict(module.state_dict(), strict=False)
        return partial(_call, instance, _copy(inputs))

    def _select_candidate(
        self, candidates: Iterator[Candidate], expected: list[Tensor] | None
    ) -> tuple[str, Callable[[], Any], bool | None]:
        """Return the first candidate with the expected outputs, or else the first that runs.

        Args:
            candidates: ways to call the program.
            expected: outputs of the torch module; None if they are unknown.

        Returns:
            The description of the candidate, its call, and whether the outputs match.

        Raises:
            Exception: the error of the first candidate, if none runs.
        """
        first_running: tuple[str, Callable[[], Any]] | None = None
        first_error: Exception | None = None
        for order, prepare in islice(candidates, MAX_CALL_ORDERS):
            try:
                call = prepare()
                outputs = _tensors(call())
                if self.device_type == "cuda":
                    torch.cuda.synchronize()
                matches = None if expected is None else _all_close(outputs, expected)
            except Exception as error:  # a kernel may raise anything with wrong arguments
                first_error = first_error or error
                continue
            if matches is not False:
                return order, call, matches
            first_running = first_running or (order, call)
        if first_running:
            return *first_running, False
        if first_error:
            raise first_error
        raise ValueError(
            "nothing to call: expected call(args), a class ModelNew, or the function that the entry names"
        )


def _is_module_class(value: object) -> TypeGuard[type[nn.Module]]:
    return isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module


def _call(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Call a function or module without gradients."""
    with torch.no_grad():
        return function(*inputs)


def _copy(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs with cloned tensors, because a program may write to them."""
    return [x.clone() if isinstance(x, Tensor) else x for x in inputs]


def _prepare_list_call(
    function: Callable[[list[Any]], Any],
    arguments: Sequence[str | int],
    weights: dict[str, Tensor],
    inputs: Sequence[Any],
) -> Callable[[], Any]:
    """Return the call of a function that takes a list; it gets a new list each time, since it may clear it.

    Args:
        function: `call` of a program.
        arguments: names of weights and indices of inputs, in order.
        weights: parameters and buffers of the module.
        inputs: inputs of the module.
    """
    copies = _copy(inputs)
    values = [copies[a] if isinstance(a, int) else weights[a] for a in arguments]
    return lambda: function(list(values))


def _argument_orders(
    declared: Sequence[str | int] | None, weights: list[str], num_inputs: int
) -> Iterator[tuple[str, Sequence[str | int]]]:
    """Yield orders in which `call` may take its arguments: names of weights and indices of inputs.

    Args:
        declared: order that the program declares, see `nas_rlm.programs.inductor`.
        weights: names of the module's parameters and buffers.
        num_inputs: number of inputs.
    """
    if declared is not None:
        yield "as declared", declared
        return
    inputs = list(range(num_inputs))
    yield "parameters, inputs", [*weights, *inputs]
    if weights:
        yield "inputs, parameters", [*inputs, *weights]
    for k in range(1, len(weights)):
        yield f"inputs after {k} parameters", [*weights[:k], *inputs, *weights[k:]]
    for k in range(1, len(inputs) if weights else 0):
        yield f"parameters after {k} inputs", [*inputs[:k], *weights, *inputs[k:]]


def _all_close(outputs: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether outputs have the expected shapes and, within the tolerance, values."""
    return len(outputs) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a.float(), b.float(), TOLERANCE, TOLERANCE, equal_nan=True)
        for a, b in zip(outputs, expected, strict=True)
    )


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in the nested outputs of a program."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _execute_file(source: str, name: str) -> dict[str, Any]:
    """Execute a source, and return the names it defines; it is a file, since Triton reads kernels from it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return vars(module)


def _restore_grid_helper() -> None:
    """Define Inductor's former helper `grid`, which the programs of KernelBook import."""
    from torch._inductor.runtime import triton_heuristics

    def grid(*sizes: int) -> Callable[[dict[str, int]], tuple[int, ...]]:
        blocks = ("XBLOCK", "YBLOCK", "ZBLOCK")[: len(sizes)]
        return lambda meta: tuple(
            -(-n // meta.get(b, 1)) for n, b in zip(reversed(sizes), blocks, strict=True)
        )

    if not hasattr(triton_heuristics, "grid"):
        triton_heuristics.grid = grid


def handlers() -> Handlers:
    """Return the request handlers of a new worker."""
    worker = Worker()
    methods = (worker.open, worker.generate, worker.load, worker.warm_up, worker.window)
    return {method.__name__: method for method in methods}


if __name__ == "__main__":
    die_with_parent()  # a worker in a long kernel would not notice that its input is closed
    serve_on_stdio(handlers())
