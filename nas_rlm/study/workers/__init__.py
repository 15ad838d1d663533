"""Workers of a study: this process, others with a GPU or cores each, a Ray cluster, or a device.

May import: `evaluation`, `settings`, `trial`, `values` and `free_values` of `nas_rlm.study`.
"""
