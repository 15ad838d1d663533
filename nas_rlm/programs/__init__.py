"""Programs: measurement of Python programs and Triton kernels, in processes of their own.

A program is a Python source with its inputs, called cases; it runs in a sandbox. A kernel is a Triton
program, or a torch module for which Inductor generates one. A worker is the process that runs a program or
kernel. A plan has the settings of a measurement. The digest of a program and a plan is stored with the
result, so that a table never mixes results of different sources or settings under one name.
"""
