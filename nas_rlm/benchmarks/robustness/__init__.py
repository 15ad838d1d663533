"""Benchmarks of reading ONNX files: files of others, and files that mutations made invalid.

May import: every package but cli.
"""
