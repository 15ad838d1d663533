"""The regression language model: number tokens, network, decoding, checkpoints, ONNX export.

May import: text and the packages below it.
"""
