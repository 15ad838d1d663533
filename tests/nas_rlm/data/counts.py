"""What tests of counts share."""

import search_spaces
from nas_rlm.data.synthetic import metrics
from nas_rlm.text import from_architecture

CELLS101, CELLS201 = search_spaces.get("nasbench101"), search_spaces.get("nasbench201")
SIZES = search_spaces.get("nats_size")


def counted(space, architecture, chains=0):
    return metrics(from_architecture(space, architecture), chains)


def of_201(text):
    return counted(CELLS201, CELLS201.parse(text))
