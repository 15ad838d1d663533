"""Training: recipes, datasets, the trainer, fine-tuning, distillation, several processes.

A recipe is a YAML file with all settings of a training. A number is the value of one objective of a row. A
decoder sequence has several numbers, each after the token of its objective; a row may have several sequences
in a step. Targets may be measured, computed from the graph, or predicted: pseudo-labels are draws from
surrogates of measured rows, distillation uses the medians of a teacher model. The averaged weights, an
exponential moving average, are validated and saved.

May import: surrogates and the packages below it.
"""
