"""Recorded outputs of the package, and what records them."""
