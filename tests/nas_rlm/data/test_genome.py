import numpy as np
import pytest

import search_spaces
from nas_rlm.data.genome import genome_features, genome_features_of_rows
from nas_rlm.data.tables import Row


@pytest.mark.parametrize("name", ["nasbench101", "nasbench201", "nats_size", "ofa_mbv3", "snas", "gpt_s"])
def test_features_name_the_value_of_each_variable_gene(name):
    space = search_spaces.get(name)
    architecture = space.sample(np.random.default_rng(0))
    genome = space.encode(architecture).tolist()
    variable = [i for i, count in enumerate(space.genes) if count > 1]
    expected = {f"gene/{i}={genome[i]}": 1.0 for i in variable}
    expected |= {f"gene/{i}": genome[i] for i in variable if space.genes[i] > 2}
    assert genome_features(space, architecture) == expected
    assert len(expected) >= len(variable) > 0


def test_rows_without_a_registered_space_or_an_architecture_have_no_genome():
    known = Row("nats_size", "8:8:8:8:16", {})
    rows = [known, Row("elsewhere", "8:8:8:8:16", {}), Row("", "", {}, input="x"), known]
    features = genome_features_of_rows(rows)
    assert (
        features[0]
        == features[3]
        == {
            **{f"gene/{i}={int(i == 4)}": 1.0 for i in range(5)},
            **{f"gene/{i}": float(i == 4) for i in range(5)},
        }
    )
    assert features[1:3] == [{}, {}]
