"""Benchmarks of search: fronts, proposals and studies judged by true values, and their speed.

May import: every package but cli.
"""
