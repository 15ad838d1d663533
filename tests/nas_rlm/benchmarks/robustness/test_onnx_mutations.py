import random

import onnx
import pytest
from google.protobuf.message import DecodeError

from nas_rlm.benchmarks.robustness.fuzzing import seed_models
from nas_rlm.benchmarks.robustness.onnx_mutations import MUTATIONS, mutate

SEEDS = seed_models()


def is_parsed(content):
    try:
        onnx.load_model_from_string(content)
    except DecodeError:
        return False
    return True


def test_mutations_depend_on_seed_and_number_alone():
    first = [mutate(SEEDS, 3, k) for k in range(40)]
    assert first == [mutate(SEEDS, 3, k) for k in reversed(range(40))][::-1]
    assert len(set(first)) > 35
    assert first != [mutate(SEEDS, 4, k) for k in range(40)]


def test_most_files_can_be_parsed_by_protobuf():
    parsed = sum(is_parsed(mutate(SEEDS, 5, k)) for k in range(200))
    assert 120 < parsed < 200


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_each_mutation_changes_some_models(mutation):
    changed = 0
    for k, seed in enumerate(SEEDS[:-1]):
        model = onnx.load_model_from_string(seed)
        try:
            mutation(model, random.Random(k))
        except (ValueError, TypeError, AttributeError, IndexError, DecodeError):
            continue
        changed += model.SerializeToString() != seed
    assert changed > 0
