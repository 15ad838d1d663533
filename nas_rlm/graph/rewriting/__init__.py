"""Normal form of ONNX graphs: the same graph for all files of one network, whichever tool wrote them.

Operators are converted to the text's operator set, constants are folded, control flow with known conditions
is replaced, and rewrite rules merge or remove operators.

May import: nas_rlm.graph.onnx_graphs, nas_rlm.graph.limits.
"""
