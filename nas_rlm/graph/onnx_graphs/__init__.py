"""ONNX graphs: models as flat graphs of operators, with types, shapes and known values.

A file is loaded and checked, its functions are inlined, and its values get numbers. The subpackage `shapes`
infers types and shapes.

May import: nas_rlm.graph.limits, nas_rlm.utils.
"""
