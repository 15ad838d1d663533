import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.tokens import count_exported_tokens, count_table_tokens, measure_text_speed
from nas_rlm.data import Row
from nas_rlm.data.tables import Table
from nas_rlm.text import from_architecture

SPACE = search_spaces.get("nasbench201")


def test_tokens_of_a_space_are_counted(tiny_checkpoint):
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    speed = measure_text_speed(SPACE, tokenizer, count=5, seed=3)
    rng = np.random.default_rng(3)
    lengths = [len(tokenizer.encode(from_architecture(SPACE, SPACE.sample(rng)))) for _ in range(10)][5:]
    assert (speed.median_tokens, speed.mean_tokens, speed.max_tokens) == (
        np.median(lengths),
        np.mean(lengths),
        max(lengths),
    )
    assert speed.per_second > 0


def test_tokens_of_a_table_are_counted(tiny_checkpoint):
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    programs = [f"x = {'a' * n}" for n in range(1, 9)]
    table = Table("own", [Row("python", "", {"memory": 1.0}, program) for program in programs])
    lengths = [len(tokenizer.encode(program)) for program in programs]
    assert sorted(count_table_tokens(table, tokenizer, 100)) == sorted(lengths)
    assert len(count_table_tokens(table, tokenizer, 3)) == 3


def test_tokens_of_exported_networks_are_counted_flat_and_outlined(tiny_checkpoint):
    for needed in ("transformers", "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    found = {f.exporter: f for f in count_exported_tokens("resnet50", RLM.load(tiny_checkpoint).tokenizer)}
    assert set(found) == {"dynamo", "torchscript"}
    assert all(f.outlined < f.flat for f in found.values())
    assert found["dynamo"].operators < found["torchscript"].operators  # it folds batch normalisation
