"""Translation of ONNX operators to torch modules and functions."""
