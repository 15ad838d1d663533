import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.nasbench101 import EXAMPLE, Cell101, NASBench101, vertex_channels

SPACE = NASBench101()


def cell(ops: str, *edges: tuple[int, int]) -> Cell101:
    """A cell of c (conv3x3), p (conv1x1) and m (maxpool) between input and output."""
    names = {"c": "conv3x3-bn-relu", "p": "conv1x1-bn-relu", "m": "maxpool3x3"}
    n = len(ops) + 2
    adjacency = tuple(tuple(int((u, v) in edges) for v in range(n)) for u in range(n))
    return Cell101(adjacency, ("input", *(names[o] for o in ops), "output"))


def test_golden_params():
    assert SPACE.params(SPACE.parse(EXAMPLE)) == sum(
        [
            27 * 128 + 2 * 128,
            *(9 * c * c + 2 * c + i * c + 2 * c for c in (128, 256, 512) for i in (c, c)),
            *(9 * c * c + 2 * c + i * c + 2 * c for c, i in ((128, 128), (256, 128), (512, 256))),
            5130,
        ]
    )


def test_vertices_that_feed_the_output_share_its_channels():
    c = cell("cpm", (0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4))
    assert vertex_channels(c, 128, 128) == [128, 43, 43, 42, 128]


def test_remaining_channels_follow_the_order_of_enumeration():
    a = cell("cpm", (0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4))
    b = cell("mpc", (0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4))
    assert b.as_trained() == a.as_trained() == a
    assert SPACE.params(a) == SPACE.params(b)


@given(st.integers(0, 10_000))
def test_cells_with_one_key_have_one_size(seed):
    rng = np.random.default_rng(seed)
    a = SPACE.sample(rng).pruned()
    order: list[int] = []
    while len(order) < len(a.ops):
        ready = [v for v in range(len(a.ops)) if v not in order and set(a.sources(v)) <= set(order)]
        order.append(int(rng.choice(ready)))
    b = a.reordered(order)
    assert b.as_trained() == a.as_trained()
    assert SPACE.params(a) == SPACE.params(b)
    assert SPACE.key(a) == SPACE.key(b)


def test_isomorphic_cells_have_one_key():
    a = cell("cp", (0, 1), (0, 2), (1, 3), (2, 3))
    b = cell("pc", (0, 1), (0, 2), (1, 3), (2, 3))
    assert SPACE.key(a) == SPACE.key(b) != SPACE.key(cell("cc", (0, 1), (0, 2), (1, 3), (2, 3)))


def test_vertices_on_no_path_do_not_matter():
    a = cell("cp", (0, 1), (1, 3), (0, 2))
    b = cell("c", (0, 1), (1, 2))
    assert a.pruned() == b
    assert SPACE.key(a) == SPACE.key(b)
    assert SPACE.params(a) == SPACE.params(b)


def test_keys_are_distinct_in_the_table(shared_data):
    from nas_rlm.data import read

    rows = read(shared_data / "architectures" / "nasbench101.parquet").rows[:1500]
    assert len({SPACE.key(SPACE.parse(r.arch_str)) for r in rows}) == len(rows)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("not json", "is not JSON"),
        ("[]", "is not JSON"),
        ({"adjacency": 5, "ops": ["input", "output"]}, "is not JSON"),
        ({"adjacency": "0100", "ops": 5}, "is not JSON"),
        ({"adjacency": "0100", "matrix": "0100", "ops": ["input", "output"]}, "is not JSON"),
        ({"matrix": "0100"}, "is not JSON"),
        ([[[0, 1], [0, 0]]], "is not JSON"),
        ("{}", "is not JSON"),
        ("5", "is not JSON"),
        ({"adjacency": "", "ops": []}, "has 0 vertices"),
        ({"adjacency": "0", "ops": ["input"]}, "has 1 vertex"),
        ({"adjacency": "0100", "ops": "input"}, "should be 1 x 1"),
        ({"adjacency": "010001000", "ops": [-1, 3, -2]}, "unknown operator 3"),
        ({"adjacency": "010001000", "ops": ["input", ["maxpool3x3"], "output"]}, "unknown operator"),
        ({"adjacency": [[0, 1, 0], [0, 0, "x"], [0, 0, 0]], "ops": [-1, 0, -2]}, "should be 3 x 3"),
        ({"adjacency": [[0, 1, 0], [0, 0, None], [0, 0, 0]], "ops": [-1, 0, -2]}, "should be 3 x 3"),
        ({"adjacency": [[0, 2], [0, 0]], "ops": ["input", "output"]}, "should be 2 x 2"),
        ({"adjacency": "010001000", "ops": ["input", "conv5x5", "output"]}, "unknown operator 'conv5x5'"),
        ({"adjacency": "0100", "ops": ["input", "maxpool3x3", "output"]}, "should be 3 x 3"),
        ({"adjacency": "010000000", "ops": ["input", "maxpool3x3", "output"]}, "no path"),
        ({"adjacency": "010101000", "ops": ["input", "maxpool3x3", "output"]}, "goes back"),
    ],
)
def test_malformed_text_names_the_bad_part(content, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(content if isinstance(content, str) else json.dumps(content))


SMALL = cell("cm", (0, 1), (1, 2), (2, 3), (0, 3))
MATRIX = [[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
NAMES = ["input", "conv3x3-bn-relu", "maxpool3x3", "output"]


@pytest.mark.parametrize(
    "content",
    [
        {"adjacency": "0101001000010000", "ops": NAMES},
        {"adjacency": ["0101", "0010", "0001", "0000"], "ops": NAMES},
        {"adjacency": MATRIX, "ops": ",".join(NAMES)},
        {"matrix": [[float(e) for e in row] for row in MATRIX], "ops": NAMES},
        {"module_adjacency": [[bool(e) for e in row] for row in MATRIX], "module_operations": NAMES},
        {"matrix": MATRIX, "ops": [-1, 0, 2, -2]},
        [MATRIX, [-1, 0, 2, -2]],
    ],
)
def test_published_forms_are_the_same_cell(content):
    assert SPACE.parse(json.dumps(content)) == SMALL
    assert SPACE.parse(json.dumps(content, indent=2)) == SMALL


def padded(edges, ops, n):
    """The text of a cell with vertices inserted before the output, which nothing connects with it."""
    matrix = [[0] * n for _ in range(n)]
    for u, v in edges:
        matrix[u][v if v >= 0 else n - 1] = 1
    return json.dumps({"matrix": matrix, "ops": ops})


@pytest.mark.parametrize(
    ("edges", "extra"),
    [
        ([], ["null"] * 3),  # padded to seven vertices with another operator
        ([], ["maxpool3x3"] * 9),  # too many vertices
        ([(0, 3), (1, 3), (2, 3)], ["maxpool3x3"] * 5),  # a vertex that does not reach the output
        ([(3, -1), (4, -1), (3, 4)], ["conv1x1-bn-relu"] * 4),  # vertices that the input does not reach
        ([(0, 3), (0, 4), (0, 5), (1, 3), (1, 4), (1, 5)], ["maxpool3x3"] * 3),  # too many edges
    ],
)
def test_cells_that_are_valid_after_pruning_are_pruned(edges, extra):
    small = [(0, 1), (1, 2), (2, -1), (0, -1)]
    text = padded([*small, *edges], [*NAMES[:-1], *extra, "output"], 4 + len(extra))
    assert SPACE.parse(text) == SMALL
    assert SPACE.parse(str(SPACE.parse(text))) == SMALL


def test_cells_of_the_space_are_not_pruned():
    a = cell("cp", (0, 1), (1, 3), (0, 2))
    assert SPACE.parse(str(a)) == a


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (padded([(i, i + 1) for i in range(8)], ["input", *["maxpool3x3"] * 7, "output"], 9), "9 vertices"),
        (padded([(0, 1), (1, -1)], ["input", "null", "output"], 3), "unknown operator 'null'"),
        (padded([(0, 1)], ["input", *["maxpool3x3"] * 7, "output"], 9), "9 vertices"),
        (padded([(0, 1), (3, 2), (0, -1)], ["input", *["null"] * 7, "output"], 9), "goes back"),
        (
            padded(
                [(u, v) for u in range(5) for v in range(u + 1, 5)],
                ["input", *["maxpool3x3"] * 3, "output"],
                5,
            ),
            "10 edges",
        ),
    ],
)
def test_cells_that_are_not_valid_after_pruning_are_refused(text, part):
    with pytest.raises(ValueError, match=part):
        SPACE.parse(text)


def test_a_genome_without_a_path():
    with pytest.raises(ValueError, match="no path from input to output"):
        SPACE.decode(np.zeros(26, dtype=int))
