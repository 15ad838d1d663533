import numpy as np
import pytest

import search_spaces
from nas_rlm import RLM
from nas_rlm.benchmarks.text.tokens import (
    TextLengths,
    count_exported_tokens,
    measure_text_speed,
    table_text_lengths,
)
from nas_rlm.data import Row, reference_networks
from nas_rlm.data.tables import Table
from nas_rlm.text import from_architecture

SPACE = search_spaces.get("nasbench201")


def test_tokens_of_a_space_are_counted(tiny_checkpoint):
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    lengths, per_second = measure_text_speed(SPACE, tokenizer, count=5, seed=3)
    rng = np.random.default_rng(3)
    texts = [from_architecture(SPACE, SPACE.sample(rng)) for _ in range(10)][5:]
    assert lengths.tokens == [len(tokenizer.encode(text)) for text in texts]
    assert all(1 < n < tokens for n, tokens in zip(lengths.statements, lengths.tokens, strict=True))
    assert per_second > 0


def test_statements_are_counted(tiny_checkpoint):
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    chains = [[f"v{i + 1} = Relu (v{i})\n" for i in range(n)] for n in (1, 40)]
    many = "".join(f"v{i} = Add (v0, v0)\n" for i in range(1, 41))
    ids = [tokenizer.encode(text) for text in (*map("".join, chains), many)]
    one, chain, independent = TextLengths.of(ids, tokenizer).statements
    assert one == 1
    assert one < chain < independent


def test_tokens_of_a_table_are_counted(tiny_checkpoint):
    tokenizer = RLM.load(tiny_checkpoint).tokenizer
    programs = [f"x = {'a' * n}" for n in range(1, 9)]
    table = Table("own", [Row("python", "", {"memory": 1.0}, program) for program in programs])
    lengths = [len(tokenizer.encode(program)) for program in programs]
    assert sorted(table_text_lengths(table, tokenizer, 100).tokens) == sorted(lengths)
    few = table_text_lengths(table, tokenizer, 3)
    assert len(few.tokens) == len(few.statements) == 3


def test_tokens_of_exported_networks_are_counted_flat_and_outlined(tiny_checkpoint, monkeypatch):
    for needed in ("transformers", "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    kind, settings = reference_networks.NETWORKS["resnet50"]
    fewer = (kind, {**settings, "depths": [1, 3, 2, 1]})
    monkeypatch.setitem(reference_networks.NETWORKS, "resnet50", fewer)
    found = {f.exporter: f for f in count_exported_tokens("resnet50", RLM.load(tiny_checkpoint).tokenizer)}
    assert set(found) == {"dynamo", "torchscript"}
    assert all(f.outlined < f.flat for f in found.values())
    assert found["dynamo"].operators < found["torchscript"].operators  # it folds batch normalisation
