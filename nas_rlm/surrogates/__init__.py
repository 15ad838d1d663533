"""Surrogates: models that learn from few labels on graph features or n-grams, and the ensemble with the network.

May import: data, model and the packages below them.
"""
