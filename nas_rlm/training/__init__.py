"""Training: recipes, datasets, the trainer, fine-tuning, distillation, several processes.

May import: surrogates and the packages below it.
"""
