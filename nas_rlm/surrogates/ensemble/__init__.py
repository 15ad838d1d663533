"""The ensemble of the network and its surrogates: quantiles and samples of objectives.

- `trained_model`: what a checkpoint stores; texts in batches, which processes decode;
- `selection`: the surrogates that predict networks of a space;
- `checks`: what cannot be predicted is refused, what is unreliable gives a warning;
- `query`, `distributions`: texts with their objectives, and what surrogates predict for them;
- `quantiles`, `samples`, `log_probabilities`: the network together with the surrogates;
- `zero_label_models`: models with surrogates for spaces without labels;
- `ensemble`: the class `Ensemble`, which uses all of them.

May import: the other modules of surrogates, except calibration and fitting.
"""

from nas_rlm.surrogates.ensemble.ensemble import Ensemble

__all__ = ["Ensemble"]
