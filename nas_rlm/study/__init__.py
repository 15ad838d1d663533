"""Studies: the loop from a user's training function and device to trained, measured networks.

May import: plotting, search, devices, rlm and the packages below them.
"""
