"""Search: objectives, settings, algorithms, active search, run directories, Pareto fronts.

May import: devices, programs, rlm and the packages below them.
"""
