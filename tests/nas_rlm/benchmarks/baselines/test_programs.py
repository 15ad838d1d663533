import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas_rlm.benchmarks.baselines.programs import loop_depth, neighbours, program_length
from nas_rlm.metrics import spearman


@pytest.mark.parametrize(
    ("program", "depth"),
    [
        ("x = 1", 0),
        ("for i in a:\n  while i: pass\nfor j in b: pass", 2),
        ("[x for y in z for x in y]", 2),
        ("def f():\n return [[1 for i in a] for j in b]", 2),
        ("for i in a:\n  b = [j for j in i]", 2),
        ("int main() { for (;;) { f(); } while (1) {} }", 1),
        ("for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) a[i] = j; while (x) x--;", 2),
        ("int main() { for (int i = 0; i < 3; i++) { while (1) { g(); } for (;;) for (;;) x(); } }", 3),
        ("// for for\nint x; /* while { */ char* s = \"for {\"; char c = '{'; for (;;) {}", 1),
        ("}}} for", 1),
        ("for i in a:\n  print i\nfor j in b:\n  # for\n  while {}:\n    print j\n  print 'for'", 2),
        ("for i in a:\n    x = '\\d'", 1),
    ],
)
def test_depth_of_nested_loops(program, depth):
    assert loop_depth([program]).tolist() == [depth]


@given(st.lists(st.sampled_from(["for(;;)", "while(x)", "{", "}", ";", "f();", "\n"]), max_size=40))
def test_any_text_has_a_depth(parts):
    (found,) = loop_depth([" ".join(parts)])
    assert 0 <= found <= sum("(;;)" in part or "while" in part for part in parts)


def test_lengths():
    assert program_length(["abc", ""]).tolist() == [3, 0]


def test_neighbours_predict_similar_programs():
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    rng = np.random.default_rng(0)
    kinds = rng.integers(5, size=200)
    programs = [f"call_{k}({rng.integers(3)}, [{rng.integers(3)}] * n_{k})" for k in kinds]
    values = 10.0**kinds * rng.uniform(0.9, 1.1, 200)
    found = neighbours(programs[:150], values[:150], programs[150:])
    assert spearman(found, values[150:]) > 0.9
    assert np.isfinite(neighbours(programs[:3], values[:3], ["nothing alike"])).all()
