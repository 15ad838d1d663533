"""The process in which Triton kernels run: on a GPU, or in Triton's interpreter.

    python -m nas_rlm.programs.triton_worker

A kernel that reaches beyond its memory spoils this process for all others, so that each one gets its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from nas_rlm.devices.serving import Answers, serve_standard
from nas_rlm.programs.sandbox import end_with_parent

WARM = 0.2  # seconds of runs before any counts
FIRST = 20  # runs of which a window is at least, where they are not interpreted
ORDERS = 64  # of arguments that are tried
TOLERANCE = 1e-2  # within which a kernel does what its module does: tensor cores round
# What Triton's interpreter does not know of a GPU's library of functions.
FUNCTIONS = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil")},
    **{name: getattr(np, name) for name in ("trunc", "fmod", "hypot", "isnan", "isinf")},
    **{"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2},
    **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
    **{"abs": np.abs, "pow": np.power, "rint": np.rint, "nearbyint": np.rint, "round": np.round},
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


Call = tuple[str, Callable[[], Callable[[], Any]]]  # how, and what makes the call


class Worker:
    """The kernels that a process holds, by number."""

    def __init__(self) -> None:
        self.kernels: dict[int, Callable[[], Any]] = {}
        self.place = "cpu"

    def open(self, interpret: bool) -> dict[str, Any]:
        """Settle on the GPU or the interpreter, and tell of the machine."""
        if not interpret and not torch.cuda.is_available():
            raise ValueError("there is no GPU: --interpret checks kernels without one")
        if interpret:
            os.environ["TRITON_INTERPRET"] = "1"  # before Triton's own functions are made
        import triton

        told = {"triton": triton.__version__, "torch": torch.__version__}
        _fit_older_programs()
        if interpret:
            _fit_without_gpu()
            return {"device": "triton-interpreter", **told}
        self.place = "cuda"
        name = torch.cuda.get_device_name().lower().replace(" ", "-")
        return {"device": name, "cuda": torch.version.cuda, **told}

    def make(self, content: bytes) -> dict[str, Any]:
        """The Triton program of a torch module, see `nas_rlm.programs.inductor`."""
        from nas_rlm.programs.inductor import triton_program

        given = json.loads(content)
        scope = _run(given["source"], "module")
        module, name = self._module(scope, given["entry"])
        return {"source": triton_program(module, self._inputs(scope), name)}

    def load(self, number: int, content: bytes) -> dict[str, Any]:
        """Load a program, find how it is called, and run it until it is warm.

        Returns:
            `order` tells how; `matches` whether it does what its module does, None where there is none.
        """
        given = json.loads(content)
        scope = _run(given["source"], "kernel")
        own = _run(given["module"], "module") if given["module"] else scope
        inputs, module, expected = self._inputs(own), None, None
        if given["module"]:
            module, _ = self._module(own, given["entry"])
            expected = [one.clone() for one in _tensors(_called(module, _copied(inputs)))]
        calls = self._calls(scope, own, module, inputs, given["entry"])
        order, kernel, matches = self._first(calls, expected)
        start = time.perf_counter()
        while time.perf_counter() - start < WARM:
            kernel()
        if self.place == "cuda":
            torch.cuda.synchronize()
        self.kernels[number] = kernel
        return {"order": order, "matches": matches}

    def window(self, number: int, seconds: float) -> dict[str, Any]:
        """Run a kernel as often as it takes to fill so many seconds: ms a run."""
        kernel, runs = self.kernels[number], FIRST if self.place == "cuda" else 1
        while (taken := self._timed(kernel, runs)) < seconds:
            runs = max(2 * runs, int(1.2 * runs * seconds / max(taken, 1e-6)) if taken > 0 else 0)
        return {"time": 1e3 * taken / runs, "runs": runs}

    def _timed(self, kernel: Callable[[], Any], runs: int) -> float:
        """Seconds that so many runs take."""
        if self.place == "cpu":
            start = time.perf_counter()
            for _ in range(runs):
                kernel()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(runs):
            kernel()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3

    def _module(self, scope: dict[str, Any], entry: str) -> tuple[nn.Module, str]:
        """The torch module of a file: the class of that name, or the last one that it defines."""
        kinds = {name: value for name, value in scope.items() if _is_module(value)}
        own = [name for name, kind in kinds.items() if kind.__module__ == scope["__name__"]]
        name = entry or (own[-1] if own else "")
        if name not in kinds:
            raise ValueError(f"there is no torch module {name!r}: expected a class and get_inputs()")
        return self._built(kinds[name], scope), name

    def _built(self, kind: type[nn.Module], scope: dict[str, Any]) -> nn.Module:
        """A module, with what the file's `get_init_inputs` gives, always with the same parameters."""
        given = scope["get_init_inputs"]() if "get_init_inputs" in scope else []
        match given:
            case [list() | tuple() as positional, dict() as named]:
                pass
            case _:
                positional, named = given, {}
        torch.manual_seed(0)
        return kind(*positional, **named).to(self.place).eval()

    def _inputs(self, scope: dict[str, Any]) -> list[Any]:
        if "get_inputs" not in scope:
            raise ValueError("there is no get_inputs(): expected a function that gives a list of tensors")
        torch.manual_seed(1)
        return [x.to(self.place) if isinstance(x, Tensor) else x for x in scope["get_inputs"]()]

    def _calls(
        self,
        scope: dict[str, Any],
        own: dict[str, Any],
        module: nn.Module | None,
        inputs: list[Any],
        entry: str,
    ) -> Iterator[Call]:
        """The ways in which a program may want to be called, the likeliest first.

        Args:
            scope: of the program.
            own: of the file that has the inputs.
            module: what it stands for, if that is known.
            inputs: of the module, or of the program's function.
            entry: the name of the module or of the function.
        """
        function = scope.get(entry)
        if callable(function) and not _is_module(function):
            yield "inputs", lambda: partial(_called, function, _copied(inputs))
        for name in (f"{entry}New", "ModelNew"):
            kind = scope.get(name)
            if _is_module(kind):
                yield name, partial(self._with_module, kind, own, module, inputs)
        if callable(call := scope.get("call")):
            named = chain(module.named_parameters(), module.named_buffers()) if module is not None else ()
            held = {name: value.data for name, value in named}
            for order, wanted in _orders(scope.get("ARGUMENTS"), list(held), len(inputs)):
                yield order, partial(_with_list, call, wanted, held, inputs)

    def _with_module(
        self, kind: type[nn.Module], own: dict[str, Any], module: nn.Module | None, inputs: list[Any]
    ) -> Callable[[], Any]:
        """The call of a module made of kernels, with the parameters of the one that it stands for."""
        built = self._built(kind, own)
        if module is not None:
            built.load_state_dict(module.state_dict(), strict=False)
        return partial(_called, built, _copied(inputs))

    def _first(
        self, calls: Iterator[Call], expected: list[Tensor] | None
    ) -> tuple[str, Callable[[], Any], bool | None]:
        """The first way that runs, and does what it should where one knows that."""
        runs: tuple[str, Callable[[], Any]] | None = None
        error: Exception | None = None
        for order, make in islice(calls, ORDERS):
            try:
                call = make()
                found = _tensors(call())
                if self.place == "cuda":
                    torch.cuda.synchronize()
                matches = None if expected is None else _alike(found, expected)
            except Exception as failed:  # whatever a kernel raises, another order may do
                error = error or failed
                continue
            if matches is not False:
                return order, call, matches
            runs = runs or (order, call)
        if runs:
            return *runs, False
        if error:
            raise error
        raise ValueError(
            "nothing to call: expected call(args), a class ModelNew, or the function that is named"
        )


def _is_module(value: object) -> TypeGuard[type[nn.Module]]:
    return isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module


def _called(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    with torch.no_grad():
        return function(*inputs)


def _copied(inputs: Sequence[Any]) -> list[Any]:
    """Inputs for one way of calling alone, which may write to them."""
    return [one.clone() if isinstance(one, Tensor) else one for one in inputs]


def _with_list(
    function: Callable[[list[Any]], Any],
    wanted: Sequence[str | int],
    held: dict[str, Tensor],
    inputs: Sequence[Any],
) -> Callable[[], Any]:
    """The call of a function of a list, of its own each time, since what Inductor writes empties it."""
    copies = _copied(inputs)
    arguments = [copies[one] if isinstance(one, int) else held[one] for one in wanted]
    return lambda: function(list(arguments))


def _orders(
    told: Sequence[str | int] | None, parameters: list[str], count: int
) -> Iterator[tuple[str, Sequence[str | int]]]:
    """Orders in which `call` may take parameters, by their names, and inputs, by their numbers.

    Args:
        told: by the program, see `nas_rlm.programs.inductor`.
        parameters: of the module, and its buffers.
        count: of inputs.
    """
    if told is not None:
        yield "as it says", told
        return
    inputs = list(range(count))
    yield "parameters, inputs", [*parameters, *inputs]
    if parameters:
        yield "inputs, parameters", [*inputs, *parameters]
    for at in range(1, len(parameters)):
        yield f"inputs after {at} parameters", [*parameters[:at], *inputs, *parameters[at:]]
    for at in range(1, len(inputs) if parameters else 0):
        yield f"parameters after {at} inputs", [*inputs[:at], *parameters, *inputs[at:]]


def _alike(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return len(found) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a.float(), b.float(), TOLERANCE, TOLERANCE, equal_nan=True)
        for a, b in zip(found, expected, strict=True)
    )


def _tensors(found: Any) -> list[Tensor]:
    """The tensors of what a program gives."""
    return [one for one in torch.utils._pytree.tree_leaves(found) if isinstance(one, Tensor)]


def _run(source: str, name: str) -> dict[str, Any]:
    """What a file defines; it is a file for the time being, since Triton reads functions from theirs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return vars(module)


def _fit_older_programs() -> None:
    """Give Inductor back what the programs of KernelBook import from it."""
    from torch._inductor.runtime import triton_heuristics

    def grid(*sizes: int) -> Callable[[dict[str, int]], tuple[int, ...]]:
        blocks = ("XBLOCK", "YBLOCK", "ZBLOCK")[: len(sizes)]
        return lambda meta: tuple(
            -(-n // meta.get(b, 1)) for n, b in zip(reversed(sizes), blocks, strict=True)
        )

    if not hasattr(triton_heuristics, "grid"):
        triton_heuristics.grid = grid  # type: ignore[attr-defined]


def _fit_without_gpu() -> None:
    """Let programs that were made for a GPU find a processor in its place."""
    from torch._inductor.runtime import triton_helpers

    guards: Any = torch._C._dynamo.guards
    guards._empty_strided_cuda = guards._empty_strided_cpu
    binding: Any = torch._C
    binding._cuda_getCurrentRawStream = lambda device: 0
    cuda: Any = torch.cuda
    cuda._DeviceGuard = lambda index: nullcontext()
    cuda.set_device = lambda device: None
    library = triton_helpers.libdevice
    known = {name: _interpreted(one) for name, one in FUNCTIONS.items() if hasattr(library, name)}
    library.__dict__.update(known)


def _interpreted(function: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """A function of the library, for Triton's interpreter."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*values: Any) -> Any:
        tensor = next(value for value in values if isinstance(value, tl.tensor))
        given = [value.handle.data if isinstance(value, tl.tensor) else value for value in values]
        with np.errstate(all="ignore"):
            found = np.asarray(function(*given)).astype(tensor.handle.data.dtype)
        return tl.tensor(TensorHandle(found, tensor.handle.dtype), tensor.type)

    return call


def answers() -> Answers:
    """What a worker can be asked for."""
    worker = Worker()
    return {"open": worker.open, "make": worker.make, "load": worker.load, "window": worker.window}


if __name__ == "__main__":
    end_with_parent()  # who is busy with a kernel does not see that nobody asks any more
    serve_standard(answers())
