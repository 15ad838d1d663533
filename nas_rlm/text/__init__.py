"""Text: any ONNX model, or an architecture of a search space, as canonical and outlined ONNX text."""

from nas_rlm.text.canonical import from_architecture, from_architectures, from_onnx
from nas_rlm.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "from_architecture", "from_architectures", "from_onnx"]
