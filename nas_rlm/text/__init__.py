"""Text: ONNX models and architectures as canonical, outlined ONNX text; its tokenizer and statements.

May import: search_spaces, nas_rlm.utils, nas_rlm.files, nas_rlm.graph.
"""

from nas_rlm.text.canonical import from_architecture, from_architectures, from_onnx
from nas_rlm.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "from_architecture", "from_architectures", "from_onnx"]
