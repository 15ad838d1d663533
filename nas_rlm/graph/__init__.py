"""Graphs: ONNX files and torch modules as typed graphs with shapes, and their costs.

May import: search_spaces, nas_rlm.utils, nas_rlm.files.
"""
