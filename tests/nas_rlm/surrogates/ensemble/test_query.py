import numpy as np
import pytest

import search_spaces
from nas_rlm.surrogates.ensemble.query import TextQuery
from nas_rlm.text import from_onnx
from tests.nas_rlm.onnx_models import with_batch


def test_the_texts_of_a_part_are_distinct_and_have_the_same_numbers():
    given = {"loss": np.array([1.0, 2.0, np.nan, 4.0]), "memory": np.array([5.0, 6.0, np.nan, np.nan])}
    genomes = [{"gene/0": float(k)} for k in range(4)]
    query = TextQuery(["a", "a", "b", "b"], ["accuracy"], "fbnet", given, genomes)
    found = [
        (rows, [*part.texts], {name: [*values] for name, values in part.given.items()}, [*part.genomes])
        for rows, part in query.parts()
    ]
    assert found == [
        ([0], ["a"], {"loss": [1.0], "memory": [5.0]}, genomes[:1]),
        ([1], ["a"], {"loss": [2.0], "memory": [6.0]}, genomes[1:2]),
        ([2], ["b"], {}, genomes[2:3]),
        ([3], ["b"], {"loss": [4.0]}, genomes[3:]),
    ]
    assert all(part.objectives == ["accuracy"] and part.space == "fbnet" for _, part in query.parts())


def test_genomes_are_of_all_texts_or_of_none():
    assert TextQuery(["a", "b"], ["loss"]).genome_by_text() == {}
    with pytest.raises(ValueError, match="shorter"):
        TextQuery(["a", "b"], ["loss"], genomes=[{}]).genome_by_text()


def test_the_batch_of_training_counts_for_objectives_of_training_alone():
    space = search_spaces.get("ofa_mbv3")
    model = space.to_onnx(space.sample(np.random.default_rng(0)))
    alone, of_eight = from_onnx(model), from_onnx(with_batch(model, 8))
    assert TextQuery([alone], ["accuracy"], "ofa_mbv3").training_batch is None
    assert TextQuery([alone, of_eight], ["latency/a"], "ofa_mbv3").training_batch is None
    assert TextQuery([alone, of_eight], ["latency/a", "accuracy"], "ofa_mbv3").training_batch == 1
