"""Acquisition: which architectures are measured or trained next, by surrogates that learn from those before.

May import: the modules of `nas_rlm.search` that do not run a search (`runner`).
"""
