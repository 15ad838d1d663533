"""Surrogates of programs: n-gram ridge regression and features of programs, combined by boosted trees.

May import `nas_rlm.surrogates.graphs` and what that may import.
"""
