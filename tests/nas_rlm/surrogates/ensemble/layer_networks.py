"""Networks of several spaces, with latencies that follow their costs."""

import numpy as np

import search_spaces
from nas_rlm.graph.costs import compute_costs
from nas_rlm.text import from_architectures
from nas_rlm.text.parser import parse_network

NAME, LEVELS = "latency/pixel3", (0.1, 0.5, 0.9)


def networks(name, count=5, seed=0):
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    drawn = [space.sample(rng) for _ in range(count)]
    return drawn, from_architectures(space, drawn)


def latencies_of(texts):
    return np.array([0.1 + 1e-8 * compute_costs(parse_network(text)).sums()[0] for text in texts])
