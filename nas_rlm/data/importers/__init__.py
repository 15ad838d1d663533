"""Importers: one module a publisher's format, each of which yields rows of the public schema.

May import: nas_rlm.data.tables and the packages below data.
"""
