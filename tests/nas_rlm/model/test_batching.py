import warnings

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from nas_rlm.model.batching import (
    TruncationWarning,
    gather_predictions,
    make_batches,
    max_batch_size,
    named_texts,
    pad,
)
from nas_rlm.text.tokenizer import PAD


def test_sequences_are_padded_at_the_end():
    assert pad([[5, 6, 7], [8]]).tolist() == [[5, 6, 7], [8, PAD, PAD]]


def test_padding_is_that_of_torch():
    rng = np.random.default_rng(0)
    sequences = [rng.integers(1, 9000, size=length).tolist() for length in rng.integers(1, 50, size=20)]
    tensors = [torch.tensor(sequence) for sequence in sequences]
    expected = pad_sequence(tensors, batch_first=True, padding_value=PAD)
    assert np.array_equal(pad(sequences), expected.numpy())


def test_predictions_come_in_the_order_of_the_texts():
    batches = [[("b", [1]), ("c", [2])], [("a", [3, 4])]]
    of_batches = iter([np.array([[2.0], [3.0]]), np.array([[1.0]])])
    predictions = gather_predictions(["a", "b", "a", "c"], batches, of_batches, (1,), False)
    assert predictions.tolist() == [[1.0], [2.0], [1.0], [3.0]]
    assert gather_predictions([], [], [], (2, 3), False).shape == (0, 2, 3)


def encode(text):
    """Token ids of a text, one for each character."""
    return [ord(c) for c in text]


@pytest.mark.parametrize(
    ("texts", "names", "message"),
    [
        (["abcd", "abc", "abcdef"], (), "text 2 (6 tokens)"),
        (["abcde", "abc", "abcde"], (), "text 0 (5 tokens), text 2 (5 tokens)"),
        (["abcde", "abc"], ("a.onnx", "b.onnx"), "a.onnx (5 tokens)"),
        (["x" * 5], ("a" * 200,), f"{'a' * 120} (5 tokens)"),
        (["x" * (5 + i) for i in range(102)], (), "text 99 (104 tokens), 2 others"),
    ],
)
def test_truncated_texts_are_named(texts, names, message):
    with pytest.warns(TruncationWarning) as caught, named_texts(names):
        batches = make_batches(texts, encode, 4)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text.startswith("the model reads only the first 4 tokens of ") and text.endswith(message)
    assert max(len(ids) for batch in batches for _, ids in batch) == 4
    assert {text for batch in batches for text, _ in batch} == set(texts)


def test_names_hold_within_their_context_only():
    with named_texts(["a.onnx"]), pytest.raises(ValueError, match="is empty"):
        make_batches([""], encode, 4)
    with pytest.warns(TruncationWarning, match="text 0"):
        make_batches(["abcde", "abcdef"], encode, 4)


def test_texts_of_the_maximum_length_are_not_truncated():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (batch,) = make_batches(["abcd", "abc"], encode, 4)
    assert batch == [("abc", encode("abc")), ("abcd", encode("abcd"))]


def test_the_memory_of_a_batch_is_bounded():
    lengths = (1, 512, 2048, 2049, 4096, 8192, 10**6)
    assert list(map(max_batch_size, lengths)) == [32768, 64, 16, 15, 4, 1, 1]
    texts = [f"{i:04}" + "x" * 4092 for i in range(10)]
    assert [len(batch) for batch in make_batches(texts, encode, 8192)] == [4, 4, 2]
