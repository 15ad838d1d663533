import torch

from nas_rlm.surrogates.graphs.evidence import training_folds
from nas_rlm.surrogates.graphs.features import COSTS, PATHS, graph_features_of_space
from nas_rlm.surrogates.graphs.views import fit_view
from tests.nas_rlm.stubs import counted_cells


def test_a_view_uses_its_groups_of_features_alone():
    graph_features, rows = graph_features_of_space("nasbench201"), counted_cells(25)
    features = graph_features.of_rows(rows)
    scores = torch.tensor([row.targets["accuracy"] for row in rows], dtype=torch.float64)
    scores = (scores - scores.mean()) / scores.std()
    folds = training_folds(len(rows))
    (whole,) = fit_view(graph_features, features, scores, (COSTS, PATHS), None)
    fitted = fit_view(graph_features, features, scores, (COSTS, PATHS), folds)
    assert fitted.shape == (1 + len(folds), features.shape[1] + 1)
    sizes = graph_features.group_sizes
    is_used = torch.cat([torch.full((n,), group in (COSTS, PATHS)) for group, n in enumerate(sizes)])
    assert 0 < is_used.sum() < len(is_used)
    for hyperparameters in (whole, *fitted):
        assert (hyperparameters[:-1][is_used] > 0).all()
        assert (hyperparameters[:-1][~is_used] == 0).all()
        assert hyperparameters[-1] > 0
