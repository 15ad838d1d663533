from dataclasses import replace

import numpy as np
import pytest

from nas_rlm.surrogates.ensemble.samples import decoding_order
from tests.nas_rlm.surrogates.ensemble.layer_networks import NAME, networks


def test_samples_of_network_and_surrogate_are_combined(rlm, surrogate, no_warnings):
    rlm.surrogates = {space: [replace(surrogate, network_temperatures={})] for space in rlm.surrogates}
    architectures, texts = networks("ofa_mbv3", 3)
    samples = rlm.sample("ofa_mbv3", architectures, [NAME], 64)[:, :, 0]
    alone = surrogate.predict(surrogate.transform(texts), NAME).median
    assert np.median(samples, 1) == pytest.approx(alone, rel=0.3)


def test_accuracy_is_decoded_first_and_the_rest_in_the_order_of_the_model():
    known = ["latency/a", "latency/b", "accuracy", "accuracy/x"]
    assert decoding_order(["accuracy/x", "latency/b", "accuracy", "latency/a"], known) == [
        *("accuracy", "latency/a", "latency/b", "accuracy/x")
    ]
