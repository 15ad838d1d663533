"""Surrogates of configurations: programs that are equal but for their numbers and some words.

May import `nas_rlm.surrogates.fields`, `programs` and `latency`, and what these may import.
"""
