import numpy as np
import pytest
import torch

from nas_rlm.surrogates.fields.target import FieldTarget, interval_width

GENERATOR = torch.Generator().manual_seed(0)
GROUPS = [3, 1, 1]


@pytest.fixture(scope="module")
def target():
    """Labels that are three times the first of three fields; the regressions know nothing."""
    features = torch.randn(100, 5, dtype=torch.float64, generator=GENERATOR)
    return FieldTarget.fit(features, GROUPS, 3 * features[:, 0].numpy())


def test_the_process_on_fields_is_chosen_where_the_regressions_know_nothing(target):
    assert target.share > 0.9
    features = torch.randn(20, 5, dtype=torch.float64, generator=GENERATOR).clamp(-1.5, 1.5)
    means, stds = target.posterior(features, torch.zeros(20, 3, dtype=torch.bool))
    values = target.transform.inverse(means)
    np.testing.assert_allclose(values, 3 * features[:, 0].numpy(), atol=0.3)
    assert stds.max() < 0.3


def test_a_narrower_width_holds_for_known_texts_alone(target):
    assert target.width < 1
    features = target.features[:1].clone()
    features[:, 0] = features[:, 0] + 1000 * features[:, 0].abs() + 1000
    none = torch.zeros(len(target.features), 3, dtype=torch.bool)
    known = target.posterior(target.features, none)[1]
    assert target.posterior(features, none[:1])[1][0] > known.max()


def test_labelled_texts_are_not_beyond_the_labelled_ones_by_rounding(monkeypatch):
    """Else each of their fields is replaced in turn, which takes long."""
    features = torch.randn(40, 5, dtype=torch.float64, generator=GENERATOR) / 3
    fitted = FieldTarget.fit(features, GROUPS, features[:, 0].numpy())

    def refuse(*_):
        raise AssertionError("no field of a labelled text is beyond all labelled ones")

    monkeypatch.setattr(FieldTarget, "_imputed", refuse)
    fitted.posterior(features, torch.zeros(40, 3, dtype=torch.bool))


def test_fields_beyond_all_labelled_ones_widen_together(target):
    features = torch.zeros(4, 5, dtype=torch.float64)
    features[1, 0] = features[2, 1] = 9.0
    features[3, :2] = 9.0
    _, (known, first, second, both) = target.posterior(features, torch.zeros(4, 3, dtype=torch.bool))
    assert first > 5 * known and second < first
    assert both > 0.9 * first


def test_only_a_field_that_matters_widens_where_it_is_lacking(target):
    features = torch.zeros(3, 5, dtype=torch.float64)
    lacking = torch.tensor([[False, False, False], [True, False, False], [False, True, False]])
    _, (known, first, second) = target.posterior(features, lacking)
    assert first > 5 * known
    assert second < 2 * known


def test_few_labels_have_wide_intervals():
    features = torch.randn(5, 5, dtype=torch.float64, generator=GENERATOR)
    few = FieldTarget.fit(features, GROUPS, 3 * features[:, 0].numpy())
    assert few.share == 1
    assert few.width > 1


def test_the_width_is_that_at_which_intervals_hold_their_share():
    errors, stds = np.linspace(-1, 1, 101), np.full(101, 0.5)
    width = interval_width(errors, stds)
    assert np.mean(np.abs(errors) <= 1.2816 * width * stds) == pytest.approx(0.8, abs=0.02)
    assert interval_width(errors, np.full(101, 1.0)) == pytest.approx(width / 2)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("share", -0.1, r"the share is -0\.1: expected a number from 0 to 1"),
        ("width", 0.0, r"the width is 0\.0: expected a number above 0"),
        ("known_std", float("inf"), "the known_std is inf: expected a number above 0"),
    ],
)
def test_values_out_of_range_are_refused(target, key, value, message):
    with pytest.raises(ValueError, match=message):
        FieldTarget.from_saved(target.tensors(), {**target.description(), key: value}, 3)


def test_tensors_of_another_number_of_fields_are_refused(target):
    with pytest.raises(ValueError, match="features"):
        FieldTarget.from_saved(target.tensors(), target.description(), 4)
