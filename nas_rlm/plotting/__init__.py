"""Figures: one module per figure, with functions that compute what is shown and functions that draw it.

May import: search and the packages below it.
"""
