"""Benchmarks: accuracy, few labels, devices, search, programs, speed, ablations, and the baselines.

May import: every package but cli.
"""
