"""Benchmarks: accuracy, few labels, devices, search, programs, speed, ablations, and their baselines.

May import: every package but cli.
"""
