"""Programs: measurement of Python programs and Triton kernels, in separate and confined processes."""
