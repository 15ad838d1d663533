"""Surrogates of latencies: of few labels, of layers with many labels, and transfer from known devices.

May import `nas_rlm.surrogates.graphs` and what that may import.
"""
