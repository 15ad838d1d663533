"""Integrations: other libraries' interfaces to studies; each module needs its library.

May import: study and the packages below it.
"""
