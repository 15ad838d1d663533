"""Text: any ONNX model, or an architecture of a search space, as canonical and outlined ONNX text."""

from .canonical import from_architecture, from_architectures, from_onnx
from .tokenizer import Tokenizer

__all__ = ["Tokenizer", "from_architecture", "from_architectures", "from_onnx"]
