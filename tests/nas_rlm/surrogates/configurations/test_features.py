import numpy as np
import pytest

from nas_rlm.surrogates.configurations.features import STD_OF_A_RATIO, STD_OF_A_WORD, ConfigurationFeatures
from nas_rlm.surrogates.configurations.text import configuration_of


def kernels(count, seed=0, size=4096):
    """Return configurations of a kernel with a size, a block, warps, a type, a flag, and what follows."""
    rng = np.random.default_rng(seed)
    return [
        configuration_of(
            f"def run_{chr(97 + i)}(): f({size}, {block}, {warps}, {2 * block + 1}, tl.{kind}, last={flag},"
            f" name='{kind}')"
        )
        for i, (block, warps, kind, flag) in enumerate(
            zip(
                2 ** rng.integers(4, 12, count),
                2 ** rng.integers(0, 5, count),
                rng.choice(["half", "single", "double"], count),
                rng.choice([True, False], count),
                strict=True,
            )
        )
    ]


def test_features_are_what_differs_and_is_not_known_from_others():
    features = ConfigurationFeatures.fit(kernels(24))
    assert features.positions.tolist() == [1, 2] and features.is_log.all()
    assert len(features.word_positions) == 3 + 2  # types and flags, not the names of functions
    assert features.numbers[0] == 4096 and (features.numbers[1:] == -1).all()
    values = features.transform(kernels(24))
    assert values.shape == (24, features.count) == (24, 7)
    np.testing.assert_allclose(values.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(0), 1, atol=1e-5)


def test_numbers_that_may_be_zero_have_no_logarithm_and_factors_are_steps():
    found = [configuration_of(f"f({a}, {b})") for a, b in zip([0, 1, 3, 2], [8, 2, 4, 16], strict=True)]
    features = ConfigurationFeatures.fit(found)
    assert features.is_log.tolist() == [False, True]
    doubled = features.transform([configuration_of(f"f(1, {b})") for b in (16, 32, 64)])
    np.testing.assert_allclose(np.diff(doubled[:, 1]), np.diff(doubled[:, 1])[0])


@pytest.mark.parametrize(
    ("change", "std"),
    [
        (("", ""), 0.0),
        (("4096", "8192"), STD_OF_A_RATIO * np.log(2)),
        (("4096", "0"), STD_OF_A_RATIO),
        (("def", "async"), STD_OF_A_WORD),
        (("half", "int"), STD_OF_A_WORD),
        (("run_a", "run_zzz"), 0.0),  # the names of functions differ anyway
    ],
)
def test_other_numbers_and_words_than_in_all_labels_are_uncertain(change, std):
    features = ConfigurationFeatures.fit(kernels(24))
    text = "def run_a(): f(4096, 64, 4, 129, tl.half, last=True, name='half')".replace(*change)
    assert features.unknown_std([configuration_of(text)])[0] == pytest.approx(std)


def test_the_same_change_in_several_places_counts_once():
    found = [configuration_of(f"a({n}, 4096); b(4096)") for n in range(8)]
    features = ConfigurationFeatures.fit(found)
    (std,) = features.unknown_std([configuration_of("a(3, 1024); b(1024)")])
    assert std == pytest.approx(STD_OF_A_RATIO * np.log(4))


def test_saved_features_are_the_same_and_damaged_ones_are_refused():
    features = ConfigurationFeatures.fit(kernels(24))
    again = ConfigurationFeatures.from_saved(features.tensors())
    others = kernels(9, 1, 100)
    np.testing.assert_array_equal(again.transform(others), features.transform(others))
    np.testing.assert_array_equal(again.unknown_std(others), features.unknown_std(others))
    tensors = features.tensors()
    for name, message in (("positions", "out of range"), ("word_positions", "out of range")):
        with pytest.raises(ValueError, match=message):
            ConfigurationFeatures.from_saved({**tensors, name: tensors[name] + 100})
    with pytest.raises(ValueError, match="expected"):
        ConfigurationFeatures.from_saved({**tensors, "is_log": tensors["is_log"][:1]})
    with pytest.raises(ValueError, match="missing"):
        ConfigurationFeatures.from_saved({k: v for k, v in tensors.items() if k != "words"})
