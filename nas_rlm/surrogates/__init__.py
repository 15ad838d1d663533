"""Surrogates: models of graph features or n-grams that learn from few labels; the ensemble with the network.

A label is the measured value of an objective. A surrogate predicts the normal score of a value, which a
rank-based transform maps to the value. Transfer uses the predictions of source surrogates, fitted to other
spaces or devices, as features of a surrogate for the target. Features are in groups; the view of a Gaussian
process is the set of groups that it uses. Two temperatures calibrate predictions: the network temperature
divides the network's logits, the combined temperature divides the logarithms of the product of the
probabilities of network and surrogate.

May import: data, model and the packages below them.
"""
