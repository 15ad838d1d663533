"""Helpers that every package uses: argument checks, process pool, progress.

May import: nothing of nas_rlm.
"""
