"""Surrogates of networks of one space: Gaussian processes on graph features, with sources of transfer.

May import `gaussian_process`, `predictive` and `target_transform` of `nas_rlm.surrogates`.
"""
