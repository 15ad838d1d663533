"""Figures: one module a figure; functions that compute what is shown apart from functions that draw it.

May import: search and the packages below it.
"""
