"""Surrogates: models of graph features or n-grams that learn from few labels; the ensemble with the network.

May import: data, model and the packages below them.
"""
