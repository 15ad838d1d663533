"""Search algorithms: each proposes a generation of architectures, then receives their costs.

All use the space's own variation operators, propose no architecture twice, and treat failed architectures as
infeasible. May import: `settings`, `pareto` and `table_space` of `nas_rlm.search`.
"""
