"""A model that predicts latencies of networks of any family, with a layer surrogate."""

import warnings
from dataclasses import replace

import pytest

from nas_rlm import RLM
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.latency import layer_fitting, layer_network
from nas_rlm.surrogates.latency.layer_fitting import fit_layers_of_texts
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.registry import NoveltyWarning
from tests.nas_rlm.surrogates.ensemble.layer_networks import NAME, latencies_of, networks


@pytest.fixture(scope="package")
def surrogate():
    texts = [text for name in ("nasbench201", "ofa_mbv3") for text in networks(name, 15)[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_network, "MIN_STEPS", 5)
        patch.setattr(layer_fitting, "NUM_FOLDS", 2)
        fitted = fit_layers_of_texts(texts, {NAME: latencies_of(texts)})
    return replace(fitted, network_temperatures={NAME: WITHOUT_NETWORK})


@pytest.fixture(params=["", "mine"])
def rlm(request, surrogate, tiny_checkpoint):
    """Return a model that was trained on networks without a space, or on those of an unknown space."""
    loaded = RLM.load(tiny_checkpoint)
    loaded.trained_on = {request.param: TrainedOn(30, (NAME,))}
    loaded.surrogates = {request.param: [surrogate]}
    return loaded


@pytest.fixture
def no_warnings():
    """Turn warnings into errors, except those of networks unlike the labelled ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoveltyWarning)
        yield
