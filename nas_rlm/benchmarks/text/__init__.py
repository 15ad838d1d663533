"""Benchmarks of texts: tokens, and how well any texts are learnt.

May import: every package but cli.
"""
