"""Text: ONNX models and architectures as canonical, outlined ONNX text; its tokenizer and statements.

Terms, besides those of `nas_rlm.graph`:

- canonical text: ONNX text that is equal for equal graphs;
- outlining: replacing repeated subgraphs by calls of functions; inlining is the opposite;
- layer, region, unit, cell, sequence: kinds of subgraphs that become functions, see `nas_rlm.text.outline`;
- scope: the text of the network or of one function, within which a name stands for one value;
- statement: one line of a scope, which defines values by an operator or call.

May import: search_spaces, nas_rlm.utils, nas_rlm.files, nas_rlm.graph.
"""

from nas_rlm.text.canonical import from_architecture, from_architectures, from_onnx
from nas_rlm.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "from_architecture", "from_architectures", "from_onnx"]
