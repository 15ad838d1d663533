import numpy as np
import pytest

from nas_rlm.surrogates.latency.nearest_devices import NUM_NEAREST, NearestDevices


def test_the_device_that_correlates_best_predicts():
    rng = np.random.default_rng(0)
    known = rng.standard_normal((120, 6))
    logs = 1.5 + 0.4 * known[:, 4] + 0.01 * rng.standard_normal(120)
    found = NearestDevices(known[:20], logs[:20])
    assert found.columns[0] == 4 and len(found.columns) == NUM_NEAREST
    assert found.predict(known[20:])[0] == pytest.approx(logs[20:], abs=0.05)


def test_left_out_predictions_are_those_of_a_fit_to_the_others():
    rng = np.random.default_rng(1)
    known = rng.standard_normal((15, 1))
    logs = 1 + 0.5 * known[:, 0] + 0.3 * rng.standard_normal(15)
    found = NearestDevices(known, logs)
    others = np.arange(15) != 3
    again = NearestDevices(known[others], logs[others])
    assert found.left_out[0, 3] == pytest.approx(again.predict(known[3:4])[0, 0], abs=1e-9)


def test_without_known_devices_there_is_no_prediction():
    found = NearestDevices(np.empty((12, 0)), np.arange(12.0))
    assert found.left_out.shape == (0, 12) and found.predict(np.empty((5, 0))).shape == (0, 5)
