"""Graphs: ONNX models as graphs with shapes, their normal form, costs and conversion to torch.

`onnx_graphs` loads ONNX models as flat graphs with shapes, `rewriting` brings them into a normal form, and
`reader` turns that form into the representation of `ir`.

Terms of this package and of `nas_rlm.text`:

- value: a tensor that is an input of a graph or the output of a node;
- leaf: an input of a node that no node computes: a weight, a small constant, or the `group` of a convolution;
- operation: the operator or call of a block that a node performs, without the values that the node reads;
- block: a graph with inputs and outputs: the network, or the body of a function that nodes call;
- chain: nodes each of which reads only the output of the previous one;
- unit: a short chain with shortcuts, such as a residual unit;
- canonical order: an order of the nodes that depends only on the graph.

May import: search_spaces, nas_rlm.utils, nas_rlm.files.
"""
