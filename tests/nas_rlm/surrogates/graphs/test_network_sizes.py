import pytest

from nas_rlm.surrogates.graphs.network_sizes import NetworkSizes, warn_of_other_sizes
from tests.nas_rlm.text.test_declarations import text_of


def classifier(side, classes):
    return text_of(f"float[1,3,{side},{side}] v0", f"float[1,{classes}] v9")


def test_sizes_are_those_of_most_labelled_networks():
    texts = [*[classifier(64, 100)] * 15, *[classifier(96, 20)] * 10, classifier(80, 21841)]
    assert NetworkSizes.of_texts(texts) == NetworkSizes(64, 96, (20, 100))
    assert NetworkSizes.of_texts([text_of("int64[1,8] v0", "float[1,8,100] v9")]) == NetworkSizes()


@pytest.mark.parametrize(
    ("text", "differences"),
    [
        (classifier(64, 100), []),
        (classifier(80, 20), []),
        (classifier(97, 20), ["images of 97x97 pixels instead of 64 to 96"]),
        (classifier(64, 10), ["10 classes instead of 20 or 100"]),
        (
            text_of("float[1,3,80,32] v0", "float[1,20,2,2] v9"),
            ["images of 80x32 pixels instead of 64 to 96", "no classes instead of 20 or 100"],
        ),
        (
            text_of("float[1,7] v0", "float[1,20] v9"),
            ["no images of a known size instead of 64 to 96 pixels"],
        ),
    ],
)
def test_differences_from_the_labelled_networks(text, differences):
    assert NetworkSizes(64, 96, (20, 100)).differences(text) == differences


def test_nothing_is_known_of_networks_that_are_no_classifiers_of_images():
    assert not NetworkSizes().differences(classifier(1, 1))


def test_labelled_networks_may_read_no_images():
    mixed = NetworkSizes.of_texts([classifier(64, 10), text_of("float[1,7] v0", "float[1,10] v9")])
    assert (mixed.min_side, mixed.max_side) == (0, 64)
    assert not mixed.differences(text_of("float[1,9] v0", "float[1,10] v9"))


def test_networks_are_named_in_one_warning():
    texts = [classifier(side, 10) for side in (32, 224, 32, 32, 32, 32)]
    names = [f"{i}.onnx" for i in range(6)]
    with pytest.warns(UserWarning) as caught:
        warn_of_other_sizes({"accuracy/imagenet": NetworkSizes(224, 224, (10,))}, texts, names)
    assert [str(w.message) for w in caught] == [
        "accuracy/imagenet of 0.onnx, 2.onnx, 3.onnx and 2 more is unreliable: it was learnt from other"
        " networks (images of 32x32 pixels instead of 224)"
    ]


def test_saved_sizes_are_restored_or_refused():
    sizes = NetworkSizes(64, 96, (20, 100))
    assert NetworkSizes.from_saved(sizes.description()) == sizes
    with pytest.raises(ValueError, match="expected whole numbers"):
        NetworkSizes.from_saved({"sides": [1], "classes": []})
