"""The regression language model: number tokens, network, decoding, checkpoints, ONNX export.

The model is that of "Regression Language Models for Code" (arXiv 2509.26476), "the paper" in this package.
Letters of array shapes:

- B texts of T tokens, or of S statements with N names;
- K objectives, Q quantile levels, n samples of each text;
- H attention heads, t decoder tokens; rows are the decodings in a batch, one or more of each text.

May import: text and the packages below it.
"""
