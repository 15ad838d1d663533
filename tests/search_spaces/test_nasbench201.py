import itertools
import json

import pytest

from search_spaces.nasbench201 import EXAMPLE, OPERATORS, Cell201, NASBench201

SPACE = NASBench201()
BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def test_golden_counts():
    cell = SPACE.parse(BEST)
    assert SPACE.params(cell) == 1_288_506
    assert SPACE.flops(cell) == 184_730_240


def test_there_are_as_many_functions_as_the_authors_count():
    keys = {SPACE.key(Cell201(ops)) for ops in itertools.product(OPERATORS, repeat=6)}
    assert len(keys) == 6466


def test_flops_equal_the_table(shared_data):
    from nas_rlm.data import read

    for row in read(shared_data / "architectures" / "nasbench201.parquet").rows[::40]:
        assert SPACE.flops(SPACE.parse(row.arch_str)) == row.targets["flops"]


def test_edges_that_multiply_by_zero_are_in_the_network():
    dead = "|none~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|none~2|"
    functions = SPACE.to_onnx(SPACE.parse(dead)).functions
    assert sum(n.op_type == "Mul" for f in functions for n in f.node) == 4


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "has 1 node "),
        ("|skip_connect~0|", "has 1 node "),
        (EXAMPLE.replace("skip_connect~1", "skip_conect~1", 1), "unknown operator 'skip_conect'"),
        (EXAMPLE.replace("nor_conv_1x1~0", "nor_conv_1x1~1", 1), "should come from node 0"),
        (EXAMPLE[:-1], "node 3 is"),
    ],
)
def test_malformed_text_names_the_bad_part(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)


EDGES = ("nor_conv_3x3", "none", "avg_pool_3x3", "skip_connect", "nor_conv_1x1", "none")


@pytest.mark.parametrize(
    "text",
    [
        " |nor_conv_3x3~0| + |none~0|avg_pool_3x3~1| + |skip_connect~0|nor_conv_1x1~1|none~2| \n",
        "|nor_conv_3x3~0|+\n|none~0|avg_pool_3x3~1|+\r\n\t|skip_connect~0|nor_conv_1x1~1|none~2|",
        "|conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|conv_1x1~1|none~2|",
        json.dumps(dict(zip(("0_1", "0_2", "1_2", "0_3", "1_3", "2_3"), EDGES, strict=True))),
        json.dumps(dict(zip(("1<-0", "2<-0", "2<-1", "3<-0", "3<-1", "3<-2"), EDGES, strict=True))),
        json.dumps(
            {
                **{"2_3": "none", "0_1": "conv_3x3", "0_2": "none"},
                **{"1_2": "avg_pool_3x3", "0_3": "skip_connect", "1_3": "conv_1x1"},
            },
            indent=1,
        ),
    ],
)
def test_published_forms_are_the_same_cell(text):
    cell = SPACE.parse(text)
    assert cell.operators == EDGES
    assert str(cell) == "|nor_conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|none~2|"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{}", "is not JSON with the operators"),
        ("{", "is not JSON with the operators"),
        ('{"0_1": "none"}', "is not JSON with the operators"),
        (json.dumps(dict.fromkeys(("0_1", "0_2", "1_2", "0_3", "1_3", "2<-3"), "none")), "is not JSON with"),
        (json.dumps(dict.fromkeys(("0_1", "0_2", "1_2", "0_3", "1_3", "2_3"), "max_pool_3x3")), "unknown op"),
        (json.dumps(dict.fromkeys(("0_1", "0_2", "1_2", "0_3", "1_3", "2_3"), 5)), "unknown operator 5"),
        (json.dumps({key: [] for key in ("0_1", "0_2", "1_2", "0_3", "1_3", "2_3")}), "unknown operator"),
    ],
)
def test_other_json_is_refused(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)
