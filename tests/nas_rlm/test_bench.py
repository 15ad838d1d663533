import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.bench import PAIRS, foreign_tokens, judge_search, text_speed
from nas_rlm.data import Row, Table
from nas_rlm.pareto import nondominated
from nas_rlm.text import from_architecture
from tests.nas_rlm.stubs import StubPredictor

SPACE = search_spaces.get("nasbench201")


def test_a_perfect_predictor_finds_nearly_the_best_of_the_table():
    architectures = [SPACE.decode(np.array(g)) for g in np.ndindex(*SPACE.genes)]
    names = (*PAIRS[0], "latency/eyeriss")
    values = StubPredictor().medians(architectures, names)
    rows = [
        Row("nasbench201", str(a), dict(zip(names, v, strict=True)))
        for a, v in zip(architectures, values.tolist(), strict=True)
    ]
    found = judge_search(SPACE, StubPredictor(), Table("all", rows), population=40, generations=15)
    assert list(found) == [(pair, method) for pair in PAIRS for method in ("nsga2", "random", "measured")]
    for pair in PAIRS:
        (nsga2,), (random,), (measured,) = (found[pair, m] for m in ("nsga2", "random", "measured"))
        assert {j.evaluations for j in (nsga2, random, measured)} == {600}
        assert nsga2.known == nsga2.chosen
        assert nsga2.share == nsga2.share_within > 0.98
        assert nsga2.share > random.share
        assert random.share == pytest.approx(measured.share)
        assert measured.chosen == 600


def test_what_the_table_does_not_have_counts_for_nothing():
    architecture = SPACE.decode(np.array([3] * 6))
    table = Table("one", [Row("nasbench201", str(architecture), {"accuracy": 94.0, "latency/pixel3": 20.0})])
    found = judge_search(SPACE, StubPredictor(), table, PAIRS[:1], population=10, generations=2, seeds=3)
    for judgements in found.values():
        assert len(judgements) == 3
        for judgement in judgements:
            assert judgement.known <= 1
            assert judgement.share == judgement.known


def test_what_the_table_does_not_have_crowds_out_nothing_within_it():
    architectures = [SPACE.decode(np.array(g)) for g in np.ndindex(*SPACE.genes)]
    values = StubPredictor().medians(architectures, PAIRS[0])
    best = nondominated(values, PAIRS[0])
    rows = [
        Row("nasbench201", str(a), dict(zip(PAIRS[0], v, strict=True)))
        for a, v, gone in zip(architectures, values.tolist(), best, strict=True)
        if not gone
    ]
    found = judge_search(SPACE, StubPredictor(), Table("most", rows), PAIRS[:1], generations=30)
    (nsga2,) = found[PAIRS[0], "nsga2"]
    assert nsga2.known < nsga2.chosen
    assert nsga2.share < nsga2.share_within


def test_a_table_without_the_objectives_is_named():
    table = Table("empty", [Row("nasbench201", "x", {"accuracy": 90.0})])
    with pytest.raises(ValueError, match="no row of empty has both accuracy and latency/pixel3"):
        judge_search(SPACE, StubPredictor(), table)


def test_tokens_of_a_space_are_counted(tiny_checkpoint):
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    speed = text_speed(SPACE, tokenizer, count=5, seed=3)
    rng = np.random.default_rng(3)
    lengths = [len(tokenizer.encode(from_architecture(SPACE, SPACE.sample(rng)))) for _ in range(10)][5:]
    assert (speed.tokens, speed.most) == (np.median(lengths), max(lengths))
    assert speed.per_second > 0


def test_tokens_of_foreign_networks_are_counted_flat_and_outlined(tiny_checkpoint):
    for needed in ("transformers", "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    found = {f.exporter: f for f in foreign_tokens("resnet50", RLM.load(tiny_checkpoint).tokenizer)}
    assert set(found) == {"dynamo", "torchscript"}
    assert all(f.outlined < f.flat for f in found.values())
    assert found["dynamo"].operators < found["torchscript"].operators  # it folds batch norm
