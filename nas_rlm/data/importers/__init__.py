"""Importers: a module for each benchmark's published files, with a function that reads them into rows."""
