import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from nas_rlm.model.batching import gather_predictions, pad
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
