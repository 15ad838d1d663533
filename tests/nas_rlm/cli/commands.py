"""What tests of the command line share."""

import csv

import numpy as np

import search_spaces
from nas_rlm.cli import main

SPACE = search_spaces.get("nasbench201")
ARCHS = [str(SPACE.sample(np.random.default_rng(seed))) for seed in range(6)]
UNSAMPLED_SEARCH = ("search", "--space", "nasbench201", "--population", "6", "--generations", "3")
SEARCH = (*UNSAMPLED_SEARCH, "--sample", "10")


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def refused(capsys, *arguments):
    """The one line that a bad command line gets."""
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("nas-rlm: error: ")] == lines[-1:]
    return lines[-1]
