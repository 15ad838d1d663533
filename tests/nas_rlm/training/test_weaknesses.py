import re
import warnings

import numpy as np
import pytest

from nas_rlm import RLM
from nas_rlm.data import Row


@pytest.fixture
def rlm(tiny_checkpoint):
    return RLM.load(tiny_checkpoint)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (
            lambda i, size: 5.0,
            "24 labelled programs of mine have equal values of memory: predictions",
        ),
        (
            lambda i, size: float(i * 7919 % 101),
            r"24 labelled programs of mine explain memory badly \(Spearman",
        ),
        (lambda i, size: 1e3 * size, None),
    ],
)
def test_programs_that_explain_an_objective_badly_are_reported(rlm, memory, message):
    sizes = np.random.default_rng(0).integers(1, 9, 24).tolist()
    programs = [
        Row("mine", "", {"memory": memory(i, size)}, f"def f(n): {'x = [0] * n; ' * size}  # {i}")
        for i, size in enumerate(sizes)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rlm.fine_tune(programs, ["memory"], learn="none")
    found = [str(warning.message) for warning in caught if "labelled programs" in str(warning.message)]
    assert len(found) == (message is not None)
    assert all(re.search(message, text) for text in found)
