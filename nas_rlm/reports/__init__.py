"""Reports on networks and spaces: inspection, comparison, and checks of a space's contract.

May import: rlm and the packages below it.
"""
