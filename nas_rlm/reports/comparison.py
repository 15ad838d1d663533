"""Comparison of ONNX files: costs, predicted objectives, and the latency of each block of layers."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nas_rlm.data.objective_kinds import is_accuracy
from nas_rlm.data.tables import EXACT_OBJECTIVES
from nas_rlm.graph.costs import compute_costs
from nas_rlm.graph.executed_layers import ALL
from nas_rlm.graph.limits import DEFAULT_LIMITS, Limits
from nas_rlm.model.batching import named_texts
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.latency.features import CLASSES, class_of
from nas_rlm.surrogates.latency.layer_calibration import MAX_NOVELTY
from nas_rlm.surrogates.latency.layer_surrogate import CONSTANT, LayerSurrogate
from nas_rlm.surrogates.registry import surrogate_by_objective, warn_of_novel_networks
from nas_rlm.text.canonical import costed_texts
from nas_rlm.text.parser import parse_network

LEVELS = (0.1, 0.5, 0.9)  # the median, and the bounds of an interval that has 80 % of the probability
BLOCK_CLASSES = (*CLASSES, CONSTANT)


@dataclass(frozen=True)
class Prediction:
    """A predicted objective.

    Args:
        median: the median.
        low: quantile at 0.1.
        high: quantile at 0.9.
        novelty: how unlike the labelled networks the network is, see `LayerSurrogate.transform`; None if no
            layer surrogate predicts the objective.
    """

    median: float
    low: float
    high: float
    novelty: float | None = None


@dataclass(frozen=True)
class BlockLatency:
    """The latency of the layers of one class whose outputs have one size.

    Args:
        side: image side of the outputs in pixels; 0 if they are no images.
        layer_class: one of `BLOCK_CLASSES`; `constant` for what does not depend on the layers.
        layers: number of executed layers.
        latency: their latency in ms.
    """

    side: int
    layer_class: str
    layers: int
    latency: float


@dataclass(frozen=True)
class ComparedNetwork:
    """Costs and predictions of a network.

    Args:
        name: path of the file.
        macs: multiply-accumulates.
        params: learnt parameters.
        activations: elements of all computed values.
        predictions: predicted objectives by name.
        blocks: latencies of blocks, from large images to small ones; empty if no layer surrogate predicts
            one of the latencies. They sum to the median.
    """

    name: str
    macs: int
    params: int
    activations: int
    predictions: Mapping[str, Prediction]
    blocks: tuple[BlockLatency, ...]


@dataclass(frozen=True)
class Comparison:
    """Networks side by side.

    Args:
        objectives: predicted objectives.
        block_objective: the latency that `ComparedNetwork.blocks` are of; empty without blocks.
        networks: the networks.
    """

    objectives: tuple[str, ...]
    block_objective: str
    networks: tuple[ComparedNetwork, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as values that JSON can represent."""
        return asdict(self)


def compare_networks(
    files: Sequence[str | os.PathLike[str]],
    objectives: Sequence[str] = (),
    rlm: RLM | str | os.PathLike[str] = "nas",
    shapes: Mapping[str, Sequence[int]] | None = None,
    space: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Comparison:
    """Return costs, predicted objectives and latencies of blocks of ONNX files.

    Examples:
        >>> import numpy as np, onnx, search_spaces
        >>> from nas_rlm import compare_networks
        >>> space = search_spaces.get("nasbench201")
        >>> for seed in range(2):
        ...     onnx.save(space.to_onnx(space.sample(np.random.default_rng(seed))), f"{seed}.onnx")
        >>> found = compare_networks(["0.onnx", "1.onnx"], ["latency/pixel3"], "nas", space="nasbench201")
        >>> [network.predictions["latency/pixel3"].median < 100 for network in found.networks]
        [True, True]

    Args:
        files: paths of ONNX files.
        objectives: objectives to predict; by default those of `default_objectives`, without latencies that
            were learnt from networks unlike all files. flops and params are among the costs.
        rlm: the model; also the name of a shipped model, or a checkpoint directory.
        shapes: shapes of inputs that have open sizes in the files, by name.
        space: name of the space as part of which the files are predicted; empty for none.
        limits: limits on each file.

    Raises:
        FileNotFoundError: a file or the model does not exist.
        ValueError: a file is not a valid ONNX model, its costs are not known, or an objective or the space is
            unknown.

    Warns:
        UserWarning: a prediction is unreliable, or latencies are left out.
    """
    if isinstance(files, str | os.PathLike):
        raise ValueError("files is a single one: expected a list of paths")
    texts = costed_texts(files, shapes, limits)
    if isinstance(rlm, str | os.PathLike):
        rlm = RLM.load(rlm)
    return compare_texts([os.fspath(file) for file in files], texts, objectives, rlm, space)


def compare_texts(
    names: Sequence[str], texts: Sequence[str], objectives: Sequence[str], rlm: RLM, space: str = ""
) -> Comparison:
    """Return the comparison of networks by their texts, see `compare_networks`.

    Args:
        names: names of the networks.
        texts: their texts.
        objectives: objectives to predict.
        rlm: the model.
        space: name of the space as part of which the networks are predicted; empty for none.
    """
    learned = tuple([name for name in objectives if name not in EXACT_OBJECTIVES])
    if not objectives:
        learned = default_objectives(rlm, space)
    if learned:
        rlm.check(learned)
        rlm.check_space(space, learned)
    rlm.check_task(space, learned, texts)
    model = rlm.transferred_to(space, learned)
    surrogates = model.surrogates_of(space)
    values = np.empty((len(texts), 0, len(LEVELS) + 1))
    if learned:
        with named_texts(names):
            values = model.predict_with_novelties(texts, learned, LEVELS, space=space)
        if not objectives:
            learned, values = _without_unlike(learned, values)
        warn_of_novel_networks(values[:, :, -1], learned, names)
    block_objective = block_latency(rlm, learned, space)
    by_layers = surrogate_by_objective(surrogates).get(block_objective)
    networks = []
    for i, text in enumerate(texts):
        predictions = {}
        for name, (low, median, high, novelty) in zip(learned, values[i].tolist(), strict=True):
            predictions[name] = Prediction(median, low, high, None if math.isnan(novelty) else novelty)
        blocks: tuple[BlockLatency, ...] = ()
        if isinstance(by_layers, LayerSurrogate):
            blocks = _blocks(by_layers, text, block_objective, predictions[block_objective].median)
        macs, params, activations = compute_costs(parse_network(text)).sums()
        networks.append(ComparedNetwork(names[i], macs or 0, params, activations, predictions, blocks))
    return Comparison(learned, block_objective, tuple(networks))


def default_objectives(rlm: RLM, space: str = "") -> tuple[str, ...]:
    """Return what a model knows of networks of a space: its accuracies, and latencies of any network.

    Args:
        rlm: the model.
        space: name of the space; empty for networks of no space, whose accuracies no model knows.

    Returns:
        The objectives, in the order of the model. Latencies that the model learnt from networks of the space
        are among them for no space, and where there is no layer surrogate.
    """
    trained = rlm.trained_on[space].objectives if space in rlm.trained_on else ()
    latencies = set(rlm.latencies_of_any_network)
    if not (space and latencies):
        latencies |= {name for name in trained if name.startswith("latency/")}
    chosen = {*latencies, *(name for name in trained if space and is_accuracy(name))}
    return tuple([name for name in rlm.objectives if name in chosen])


def _without_unlike(objectives: tuple[str, ...], values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Leave out the latencies that were learnt from networks unlike all files, unless all latencies were.

    Args:
        objectives: the K objectives.
        values: quantiles and last the novelties of N files, float64 [N, K, Q + 1].

    Returns:
        The objectives that stay, and their values.

    Warns:
        UserWarning: latencies are left out.
    """
    is_unlike = (values[:, :, -1] > MAX_NOVELTY).all(0)
    if not is_unlike.any() or is_unlike.all():
        return objectives, values
    warnings.warn(
        f"{is_unlike.sum()} of the latencies are left out, which were learnt from networks unlike all files;"
        f" name them to see them: {', '.join(np.array(objectives)[is_unlike])}",
        stacklevel=3,
    )
    return tuple(np.array(objectives)[~is_unlike].tolist()), values[:, ~is_unlike]


def block_latency(rlm: RLM, objectives: Sequence[str], space: str = "") -> str:
    """Return the first objective whose latency is known for each layer; empty if there is none.

    Args:
        rlm: the model.
        objectives: predicted objectives.
        space: name of the space; empty for none.
    """
    by_objective = surrogate_by_objective(rlm.surrogates_of(space))
    by_layers = [name for name in objectives if isinstance(by_objective.get(name), LayerSurrogate)]
    return by_layers[0] if by_layers else ""


def _blocks(surrogate: LayerSurrogate, text: str, objective: str, median: float) -> tuple[BlockLatency, ...]:
    """Return the latencies of the blocks of a network, which sum to the median."""
    layers = surrogate.layer_latencies(text, objective)
    scale = median / sum([count * latency for _, count, latency in layers])
    sums: dict[tuple[int, str], tuple[int, float]] = {}
    for layer, count, latency in layers:
        key = layer.side, CONSTANT if layer.type == CONSTANT else class_of(layer.type, ALL)
        number, total = sums.get(key, (0, 0.0))
        sums[key] = number + (0 if layer.type == CONSTANT else count), total + scale * count * latency
    ordered = sorted(sums, key=lambda key: (-key[0], BLOCK_CLASSES.index(key[1])))
    return tuple([BlockLatency(*key, *sums[key]) for key in ordered if sums[key][1] > 0])
