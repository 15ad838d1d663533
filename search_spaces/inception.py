"""Inception: four stages of equal blocks of parallel paths."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from search_spaces.graph import Graph, Value
from search_spaces.layers import concat, conv_bn, conv_bn_relu6, pool_bn, relu6, separable
from search_spaces.notation import abbreviated, is_int_between, most_similar, read_json
from search_spaces.space import SearchSpace
from search_spaces.wording import counted

CONVS = (
    *("conv3x3", "conv5x5", "inception_s3x3", "inception_s5x5", "inception_p3x3", "inception_p5x5"),
    *("depthwise3x3", "depthwise5x5"),
)
SUPPORTS = ("conv1x1", "double1x1", "avgpool3x3", "maxpool3x3")
OPERATORS = CONVS + SUPPORTS
CHANNEL_PRESERVING = (
    "depthwise3x3",
    "depthwise5x5",
    "avgpool3x3",
    "maxpool3x3",
)  # the channels, whatever they are
CHANNELS, STEM, HEAD, CLASSES = (32, 64, 128, 256), 32, 512, 10
BLOCKS = (2, 3, 4, 5, 6)
PATHS = 4
MAX_OPERATORS = {1: 3, 2: 4, 3: 8, 4: 10}  # operators of a block, by its number of paths
MIN_PATH_OPERATORS = {1: 1, 2: 1, 3: 2, 4: 2}  # operators of a path, by the number of paths
MAX_PATH_OPERATORS = 4
MIN_CHANNELS = 16
INNER = ("half", "same", "double")  # channels between operators that change them, relative to the path's
INNER_PROBABILITIES = (0.3, 0.6, 0.1)
EXAMPLE = '[{"blocks": 2, "wide": 0, "paths": [{"ops": ["conv3x3"], "inner": "same"}]}, … four stages]'
_STAGE_GENES = 3 + PATHS * (
    MAX_PATH_OPERATORS + 1
)  # genes: blocks, paths, wide, then operators and inner width of each path


@dataclass(frozen=True)
class Path:
    """A chain of operators.

    Args:
        operators: names from OPERATORS.
        inner: channels of all but the last operator that changes channels, relative to the width of the path:
            `half`, `same` or `double`.
    """

    operators: tuple[str, ...]
    inner: str


@dataclass(frozen=True)
class Stage:
    """A stage of equal blocks.

    Args:
        blocks: number of blocks.
        wide: index of the path with half of the block's channels if there are three paths, otherwise 0.
        paths: parallel paths of a block.
    """

    blocks: int
    wide: int
    paths: tuple[Path, ...]

    def widths(self, channels: int) -> list[int]:
        """Return the output channels of each path of a block with `channels` output channels."""
        n = len(self.paths)
        quarter = channels // 4
        shares = [quarter] * n if n >= 3 else [channels // n] * n
        if n == 3:
            shares[self.wide] = 2 * quarter
        return [max(MIN_CHANNELS, s) for s in shares]


@dataclass(frozen=True)
class Stages:
    """An architecture: four stages."""

    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return json.dumps(
            [
                {
                    "blocks": s.blocks,
                    "wide": s.wide,
                    "paths": [{"ops": list(p.operators), "inner": p.inner} for p in s.paths],
                }
                for s in self.stages
            ]
        )


class Inception(SearchSpace[Stages]):
    """The Inception space of Mills et al. 2023 (GENNAPE), on CIFAR-10.

    Operators are convolutions (CONVS) and support operators (SUPPORTS), at most one of the latter in a path.
    A genome has, for each stage, the number of blocks, the number of paths, the wide path of three, and for
    each of four possible paths up to four operators, 0 for none, and the inner width. Some genomes have no
    architecture.
    """

    name = "inception"
    size = None
    genes = (len(BLOCKS), PATHS, 3, *(*(len(OPERATORS) + 1,) * MAX_PATH_OPERATORS, len(INNER)) * PATHS) * len(
        CHANNELS
    )

    def decode(self, genome: np.ndarray) -> Stages:
        stages = []
        for row in np.array(self.validate_genome(genome)).reshape(len(CHANNELS), _STAGE_GENES).tolist():
            paths = []
            for genes in np.array(row[3:]).reshape(PATHS, MAX_PATH_OPERATORS + 1)[: row[1] + 1].tolist():
                paths.append(Path(tuple(OPERATORS[g - 1] for g in genes[:-1] if g), INNER[genes[-1]]))
            stages.append(Stage(BLOCKS[row[0]], row[2], tuple(paths)))
        architecture = Stages(tuple(stages))
        self.validate(architecture)
        return architecture

    def encode(self, architecture: Stages) -> np.ndarray:
        genes = np.zeros((len(CHANNELS), _STAGE_GENES), dtype=int)
        for stage, row in zip(architecture.stages, genes, strict=True):
            row[:3] = BLOCKS.index(stage.blocks), len(stage.paths) - 1, stage.wide
            for path, part in zip(stage.paths, row[3:].reshape(PATHS, MAX_PATH_OPERATORS + 1), strict=False):
                part[: len(path.operators)] = [1 + OPERATORS.index(o) for o in path.operators]
                part[-1] = INNER.index(path.inner)
        return genes.reshape(-1)

    def parse(self, text: str) -> Stages:
        expected = f"JSON of four stages such as {EXAMPLE}"
        content = read_json(text, expected, ("blocks", "wide", "paths", "ops", "inner"))
        try:
            stages = [(s["blocks"], s["wide"], [(p["ops"], p["inner"]) for p in s["paths"]]) for s in content]
            is_typed = all(
                is_int_between(blocks, 0, MAX_OPERATORS[PATHS])
                and is_int_between(wide, 0, PATHS)
                and all(isinstance(v, str) for ops, inner in paths for v in [*ops, inner])
                and all(isinstance(ops, list) for ops, _ in paths)
                for blocks, wide, paths in stages
            )
        except (KeyError, TypeError):
            is_typed = False
        if not is_typed:
            raise ValueError(f"{abbreviated(text)} is not {expected}")
        architecture = Stages(
            tuple(Stage(b, w, tuple(Path(tuple(ops), i) for ops, i in paths)) for b, w, paths in stages)
        )
        self.validate(architecture)
        return architecture

    def validate(self, architecture: Stages) -> None:
        if len(architecture.stages) != len(CHANNELS):
            raise ValueError(
                f"{architecture} has {counted(len(architecture.stages), 'stage')}, expected {len(CHANNELS)}"
            )
        for k, stage in enumerate(architecture.stages):
            where, n = f"stage {k} of {architecture}", len(stage.paths)
            if stage.blocks not in BLOCKS:
                raise ValueError(f"{where} has {stage.blocks} blocks, expected 2 to 6")
            if n not in MAX_OPERATORS:
                raise ValueError(f"{where} has {counted(n, 'path')}, expected 1 to {PATHS}")
            if stage.wide not in (range(3) if n == 3 else (0,)):
                raise ValueError(f"{where}: wide is {stage.wide}, expected a path of three, else 0")
            if sum(len(p.operators) for p in stage.paths) > MAX_OPERATORS[n]:
                raise ValueError(
                    f"{where} has more than {MAX_OPERATORS[n]} operators in {counted(n, 'path')}"
                )
            for i, path in enumerate(stage.paths):
                self._check(path, f"path {i} of {where}", MIN_PATH_OPERATORS[n])

    def _check(self, path: Path, where: str, min_operators: int) -> None:
        """Check the operators and the inner width of a path; `where` names the path in error messages."""
        for o in path.operators:
            if o not in OPERATORS:
                similar = most_similar(o, OPERATORS)
                raise ValueError(f"{where}: unknown operator {o!r}; did you mean {similar!r}?")
        if not min_operators <= len(path.operators) <= MAX_PATH_OPERATORS:
            raise ValueError(
                f"{where} has {counted(len(path.operators), 'operator')},"
                f" expected {min_operators} to {MAX_PATH_OPERATORS}"
            )
        if sum(o in SUPPORTS for o in path.operators) > 1:
            raise ValueError(f"{where} has more than one of {', '.join(SUPPORTS)}")
        if path.inner not in (INNER if _num_width_changes(path) > 1 else ("same",)):
            raise ValueError(
                f"{where}: inner is {path.inner!r}, expected one of {', '.join(INNER)} where two operators"
                " change the channels, else same"
            )

    def sample(self, rng: np.random.Generator) -> Stages:
        """Return random stages; each operator is a support operator with probability 4/12."""
        return Stages(tuple(_sample_stage(rng) for _ in CHANNELS))

    def mutate(self, architecture: Stages, rng: np.random.Generator) -> Stages:
        """Return another architecture that differs in one or two genes."""
        return self._mutate_genes(architecture, rng, 2)

    def crossover(self, a: Stages, b: Stages, rng: np.random.Generator) -> Stages:
        """Return a child that takes each stage from one of its parents."""
        pairs = zip(a.stages, b.stages, strict=True)
        return Stages(tuple(pair[int(rng.integers(2))] for pair in pairs))

    def write(self, graph: Graph, architecture: Stages) -> Value:
        x = graph.block(conv_bn_relu6, graph.input, STEM, 3, 1, 1, True)
        for k, (stage, channels) in enumerate(zip(architecture.stages, CHANNELS, strict=True)):
            for i in range(stage.blocks):
                x = graph.block(_block, x, stage, channels, 2 if k and i == 0 else 1)
        return graph.classifier(graph.block(conv_bn_relu6, x, HEAD, 3, 1, 1, True), CLASSES)


def _num_width_changes(path: Path) -> int:
    """Return the number of operators that change the number of channels."""
    return sum(o not in CHANNEL_PRESERVING for o in path.operators)


def _sample_stage(rng: np.random.Generator) -> Stage:
    """Return a random stage."""
    n = int(rng.integers(1, PATHS + 1))
    lengths = [MIN_PATH_OPERATORS[n]] * n
    for _ in range(int(rng.integers(MAX_OPERATORS[n] - sum(lengths) + 1))):
        short = [i for i, length in enumerate(lengths) if length < MAX_PATH_OPERATORS]
        lengths[int(rng.choice(short))] += 1
    paths = []
    for length in lengths:
        chosen: list[str] = []
        for _ in range(length):
            supported = any(o in SUPPORTS for o in chosen)
            support = not supported and rng.random() < len(SUPPORTS) / len(OPERATORS)
            chosen.append(str(rng.choice(SUPPORTS if support else CONVS)))
        path = Path(tuple(chosen), "same")
        paths.append(
            Path(path.operators, str(rng.choice(INNER, p=INNER_PROBABILITIES)))
            if _num_width_changes(path) > 1
            else path
        )
    return Stage(int(rng.choice(BLOCKS)), int(rng.integers(3)) if n == 3 else 0, tuple(paths))


def _block(graph: Graph, x: Value, stage: Stage, channels: int, stride: int) -> Value:
    """Write a block: parallel paths, their concatenation, and a projection if the channels do not add up."""
    widths = stage.widths(channels)
    y = concat(graph, *(_path(graph, x, p, w, stride) for p, w in zip(stage.paths, widths, strict=True)))
    if y.channels != channels:
        y = graph.block(conv_bn, y, channels, 1, 1, 1, True)
    return graph.op("Add", x, y) if stride == 1 and x.channels == channels else y


def _path(graph: Graph, x: Value, path: Path, width: int, stride: int) -> Value:
    """Write a path: the first operator has the stride, the last one that changes channels sets the width."""
    inner = {"half": width // 2, "same": width, "double": 2 * width}[path.inner]
    num_changes_left = _num_width_changes(path)
    for i, operator in enumerate(path.operators):
        if operator in CHANNEL_PRESERVING:
            channels = x.channels
        else:
            num_changes_left -= 1
            channels = inner if num_changes_left else width
        x = graph.block(_operator, x, operator, channels, 1 if i else stride)
    return x


def _operator(graph: Graph, x: Value, operator: str, channels: int, stride: int) -> Value:
    """Write an operator of a path."""
    kernel = int(operator[-1])
    if operator.startswith("inception_s"):
        return separable(graph, x, channels, kernel, stride, bias=True)
    if operator.startswith("inception_p"):
        halves = (((1, kernel), channels // 2), ((kernel, 1), channels - channels // 2))
        branches = [conv_bn_relu6(graph, x, c, k, stride, bias=True) for k, c in halves]
        return relu6(graph, concat(graph, *branches))
    if operator.startswith("depthwise"):
        return conv_bn_relu6(graph, x, channels, kernel, stride, x.channels, bias=True)
    if "pool" in operator:
        return pool_bn(graph, x, "AveragePool" if operator.startswith("avg") else "MaxPool", stride)
    y = conv_bn_relu6(graph, x, channels, kernel, stride, bias=True)
    return conv_bn_relu6(graph, y, channels, 1, bias=True) if operator.startswith("double") else y
