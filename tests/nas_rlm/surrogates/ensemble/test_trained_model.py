import numpy as np
import pytest

from nas_rlm.model import batching
from nas_rlm.model.network import Network
from nas_rlm.surrogates.ensemble.trained_model import TrainedModel


@pytest.fixture(scope="module")
def rlm(tiny_checkpoint):
    return TrainedModel.load(tiny_checkpoint)


def test_the_tokens_of_a_batch_are_limited(rlm, monkeypatch):
    monkeypatch.setattr(batching, "MAX_BATCH_TOKENS", 100)
    batches = rlm.in_batches([f"v{i}" * (i + 1) for i in range(60)], 8)
    for batch in batches:
        assert len(batch) == 1 or (len(batch) <= 8 and len(batch) * len(batch[-1][1]) <= 100)
    lengths = [len(ids) for batch in batches for _, ids in batch]
    assert len(lengths) == 60
    assert lengths == sorted(lengths)


def test_equal_texts_are_encoded_once(rlm, monkeypatch):
    encoded = []
    encode = Network.encode
    monkeypatch.setattr(Network, "encode", lambda net, ids: encoded.append(len(ids)) or encode(net, ids))
    texts = ["v1=Relu(v0)\n"] * 5 + ["v1=Add(v0,v0)\n"]
    lengths = rlm.decode_texts(texts, lambda _, batch: np.array([len(text) for text in batch]), (), 8, False)
    assert lengths.tolist() == [12] * 5 + [14]
    assert sum(encoded) == 2
