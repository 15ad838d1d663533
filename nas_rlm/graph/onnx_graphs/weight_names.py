"""Names of weights and constants in texts: their type, their shape, and which of them are tied."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnx import TensorProto


def weight_name(type_name: str, shape: Sequence[int], tie: int = 0, learnt: int = 0) -> str:
    """Return the name of a weight in the text: its shape, and its type unless that is float.

    Args:
        type_name: name of the element type.
        shape: shape of the weight.
        tie: see `nas_rlm.graph.ir.Leaf`.
        learnt: see `nas_rlm.graph.ir.Leaf`.
    """
    name = ("W" if type_name == "float" else f"{type_name}_") + ("_".join(map(str, shape)) or "scalar")
    return name + (f"_t{tie}" if tie else "") + (f"_p{learnt}" if learnt else "")


def constant_name(type_name: str, shape: Sequence[int]) -> str:
    """Return the name in the text of a computed constant whose values are not part of the text."""
    return f"C{'' if type_name == 'float' else type_name}_{'_'.join(map(str, shape)) or 'scalar'}"


_MARK = re.compile(r"(?:_t(\d+))?(?:_p(\d+))?$", re.ASCII)


def mark_of_name(name: str) -> tuple[int, int]:
    """Return `tie` and `learnt` of a weight of a text, see `nas_rlm.graph.ir.Leaf`."""
    match = _MARK.search(name)
    return (int(match[1] or 0), int(match[2] or 0)) if match else (0, 0)


def type_name(dtype: int) -> str:
    """Return the name of an ONNX element type, such as `float`."""
    return TensorProto.DataType.Name(dtype).lower()
