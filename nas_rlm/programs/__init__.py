"""Measure programs: peak memory and time of Python, in processes of their own that can harm nothing."""
