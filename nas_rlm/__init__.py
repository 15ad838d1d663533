"""nas-rlm: neural architecture search with a regression language model that reads ONNX text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas_rlm._version import __version__

if TYPE_CHECKING:
    from nas_rlm.rlm import RLM

__all__ = ["RLM", "__version__"]


def __getattr__(name: str) -> object:
    """Load torch only when the model is asked for."""
    if name == "RLM":
        from nas_rlm.rlm import RLM

        return RLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
