import numpy as np
import pytest
import torch

from nas_rlm.surrogates.fitting import fit_graph_surrogate
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.surrogates.graphs.saved_surrogate import stacked, unstacked
from nas_rlm.surrogates.graphs.surrogate import GraphSurrogate
from tests.nas_rlm.stubs import counted_cells as rows


@pytest.fixture(scope="module")
def graph_features():
    return graph_features_of_space("nasbench201")


@pytest.mark.parametrize(("num_processes", "shape"), [(1, (2, 3)), (4, (2, 4, 3))])
def test_tensors_of_objectives_are_stacked_without_the_dimension_of_a_single_process(num_processes, shape):
    by_objective = {
        name: torch.arange(3.0 * num_processes).reshape(num_processes, 3) + k for k, name in enumerate("abc")
    }
    together = stacked(by_objective, ("c", "a"))
    assert together.shape == shape
    again = unstacked(together, ("c", "a"))
    assert [*again] == ["c", "a"]
    assert all(tensor.dtype == torch.float64 for tensor in again.values())
    assert all((again[name] == by_objective[name]).all() for name in again)


def test_a_saved_weight_of_distances_that_is_none_is_refused(graph_features):
    found = fit_graph_surrogate(graph_features, rows(30), ["accuracy"])
    with pytest.raises(ValueError, match=r"distance_weight is 'much': expected 0, 0\.5 or 1"):
        GraphSurrogate.from_saved(found.tensors(), found.description() | {"distance_weight": "much"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("std", 0.0, "a standard deviation or noise is not above 0"),
        ("hyperparameters", -1.0, "an inverse length scale is below 0"),
        ("hyperparameters", 0.0, "a standard deviation or noise is not above 0"),
        ("values", np.nan, "an objective has no values"),
    ],
)
def test_invalid_surrogates_are_refused(graph_features, name, value, message):
    found = fit_graph_surrogate(graph_features, rows(20), ["accuracy"])
    description = found.description()
    tensors = {**found.tensors(), name: torch.full_like(found.tensors()[name], value)}
    with pytest.raises(ValueError, match=message):
        GraphSurrogate.from_saved(tensors, description)
    with pytest.raises(ValueError, match="mean missing"):
        GraphSurrogate.from_saved({k: v for k, v in tensors.items() if k != "mean"}, description)
    with pytest.raises(ValueError, match="are not all names"):
        GraphSurrogate.from_saved(tensors, description | {"features": [1]})
    with pytest.raises(ValueError, match="are not distinct names"):
        GraphSurrogate.from_saved(tensors, description | {"objectives": ["accuracy", "accuracy"]})
    with pytest.raises(ValueError, match="a temperature is not above 0"):
        GraphSurrogate.from_saved(found.tensors(), description | {"temperatures": {"accuracy": 0.0}})
