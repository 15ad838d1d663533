"""Search: objectives, settings, algorithms, run directories, Pareto fronts.

May import: devices, programs, rlm and the packages below them.
"""
