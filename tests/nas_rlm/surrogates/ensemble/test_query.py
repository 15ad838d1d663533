from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.data import Row
from nas_rlm.data.synthetic import distinct_architectures
from nas_rlm.model.checkpoint import TrainedOn
from nas_rlm.surrogates.ensemble.query import TextQuery
from nas_rlm.surrogates.fitting import fit_graph_surrogates
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.text import from_onnx
from tests.nas_rlm.onnx_models import with_batch
from tests.search_spaces.plain_space import DropoutSpace


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


def test_architectures_with_one_text_have_predictions_of_their_own(tiny_checkpoint):
    space = search_spaces.register(DropoutSpace())
    drawn = [*distinct_architectures(space, 40)]
    values = [50 + 20 * name.startswith("drop") + len(name) for name in drawn]
    rows = [Row(space.name, name, {"accuracy": value}) for name, value in zip(drawn, values, strict=True)]
    rlm = RLM.load(tiny_checkpoint)
    own = fit_graph_surrogates(rows, ["accuracy"])
    rlm.surrogates = {
        n: [replace(s, network_temperatures={"accuracy": WITHOUT_NETWORK}) for s in group]
        for n, group in own.items()
    }
    rlm.trained_on = {space.name: TrainedOn(len(rows), ("accuracy",))}
    pair = ["drop 1x16 3x32 5x64", "keep 1x16 3x32 5x64"]
    one_by_one = [rlm.predict(space, [name], ["accuracy"])[0, 0] for name in pair]
    assert one_by_one[0] > one_by_one[1] + 10
    for order in (pair, pair[::-1]):
        expected = [one_by_one[pair.index(name)] for name in order]
        assert rlm.predict(space, order, ["accuracy"])[:, 0].tolist() == expected
        drawn_pair = np.median(rlm.sample(space, order, ["accuracy"], 200)[:, :, 0], axis=1)
        assert drawn_pair == pytest.approx(expected, abs=4)


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
