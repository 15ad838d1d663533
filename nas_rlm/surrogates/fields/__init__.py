"""Surrogates of any texts: Gaussian processes on the numbers and words of their fields, n-grams and counts.

May import `nas_rlm.surrogates.programs` and what that may import.
"""
