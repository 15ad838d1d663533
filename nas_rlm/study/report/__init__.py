"""What a study writes beside its log: the report page, tables, the picture and the networks of the front.

May import: `settings`, `store`, `trial` and `records` of `nas_rlm.study`.
"""
