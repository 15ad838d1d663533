"""Graph features of architectures, for tests of several packages."""

import search_spaces
from nas_rlm.data.synthetic import graph_features
from nas_rlm.text import from_architecture

CELLS101, CELLS201 = search_spaces.get("nasbench101"), search_spaces.get("nasbench201")
SIZES = search_spaces.get("nats_size")


def features_of_architecture(space, architecture, max_chain_length=0):
    return graph_features(from_architecture(space, architecture), max_chain_length)


def features_of_cell(text):
    return features_of_architecture(CELLS201, CELLS201.parse(text))
