"""How fast: predictions and their parts, beside the plain way; learning; and how time and memory grow."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

import search_spaces
from nas_rlm.benchmarks.baselines.plain import Plain
from nas_rlm.benchmarks.timing import Cases, Timing, Work, timed
from nas_rlm.data import Row
from nas_rlm.model import decoding
from nas_rlm.model.batching import pad
from nas_rlm.model.network import Network
from nas_rlm.rlm import RLM
from nas_rlm.search.loop import search
from nas_rlm.search.settings import SearchSettings
from nas_rlm.surrogates.registry import predictive_distributions
from nas_rlm.text import from_architectures
from nas_rlm.text.statements import split_statements
from nas_rlm.training.dataset import make_dataset
from nas_rlm.training.recipe import TableRecipe, read_recipe
from nas_rlm.training.trainer import fit
from nas_rlm.utils.validation import MEDIAN
from search_spaces import SearchSpace

SPACES = ("nasbench201", "nasbench101", "fbnet", "ofa_mbv3", "nds_darts")
ASKED = 5  # accuracy and four latencies
BATCH = 64
SAMPLES = 64
LABELS = 100
MOST = 10**7  # networks or runs
STEPS = 20  # of pretraining
SIDE = 2048  # of the matrices that tell what the machine can do
CROPS = (64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Args:
        count: networks of a run.
        runs: that count, after one that does not.
        most: networks at once, where it is measured how time grows with them.
        evaluations: of a search, a square number.
        seed: of the networks.
        model: the name or folder of what is measured, for commands.
    """

    count: int = 1000
    runs: int = 3
    most: int = 10_000
    evaluations: int = 10_000
    seed: int = 0
    model: str = "nas"

    def __post_init__(self) -> None:
        for name, least in (("count", 1), ("runs", 1), ("most", 1), ("evaluations", 4), ("seed", 0)):
            if not least <= getattr(self, name) <= MOST:
                raise ValueError(f"{name} is {getattr(self, name)}, expected {least} to {MOST:,}")
        if isqrt(self.evaluations) ** 2 != self.evaluations:
            raise ValueError(f"evaluations is {self.evaluations}, expected a square number such as 10000")

    def networks(self, space: SearchSpace[Any], run: int, count: int | None = None) -> list[Any]:
        """Random ones, others in each run."""
        rng = np.random.default_rng([self.seed, run])
        return [space.sample(rng) for _ in range(count or self.count)]


def objectives_of(rlm: RLM, space: str) -> list[str]:
    """Accuracy and latencies that a model can be asked for, those first that it has seen in a space."""
    seen = rlm.trained_on[space].objectives if space in rlm.trained_on else ()
    known = sorted(rlm.objectives, key=lambda name: (name != "accuracy", name not in seen))
    found = [name for name in known if name == "accuracy" or name.startswith("latency/")][:ASKED]
    if not found:
        raise ValueError("the model knows no accuracy and no latency: expected one such as nas or nas-fast")
    return found


def end_to_end(rlm: RLM, plan: Plan) -> Cases:
    """From genotypes to numbers."""

    def work(space: SearchSpace[Any], drawn: Sequence[Any]) -> None:
        rlm.predict(space, drawn, objectives_of(rlm, space.name))

    yield from one_by_one(work, plan)


def one_by_one(work: Callable[[SearchSpace[Any], Sequence[Any]], None], plan: Plan) -> Cases:
    """Spaces, none of which is compared to another: each has what it remembers for itself."""
    for name in SPACES:
        space = search_spaces.get(name)
        drawn = [plan.networks(space, run) for run in range(plan.runs + 1)]
        yield from timed({name: partial(_of_run, work, space, drawn)}, plan.runs)


def _of_run(
    work: Callable[[SearchSpace[Any], Sequence[Any]], None],
    space: SearchSpace[Any],
    drawn: Sequence[Sequence[Any]],
    run: int,
) -> int:
    work(space, drawn[run])
    return len(drawn[run])


def text(rlm: RLM, plan: Plan) -> Cases:
    """From genotypes to tokens, on one core."""

    def work(space: SearchSpace[Any], drawn: Sequence[Any]) -> None:
        for one in from_architectures(space, drawn):
            rlm.token_ids(one)

    yield from one_by_one(work, plan)


def encoder(rlm: RLM, plan: Plan) -> Cases:
    """From tokens to what the decoder reads."""
    cases = {}
    for name in SPACES:
        batches = _batches(rlm, search_spaces.get(name), plan)
        cases[name] = partial(_encoded, rlm, batches)
    return timed(cases, plan.runs)


@torch.inference_mode()
def _encoded(rlm: RLM, batches: Sequence[Tensor], _: int) -> int:
    for batch in batches:
        rlm.network.encode(batch)
    return sum(map(len, batches))


def _batches(rlm: RLM, space: SearchSpace[Any], plan: Plan) -> list[Tensor]:
    texts = from_architectures(space, plan.networks(space, 0))
    return [torch.from_numpy(pad([ids for _, ids in batch])) for batch in rlm.in_batches(texts)]


def experts(rlm: RLM, plan: Plan) -> Cases:
    """From texts to what experts believe of them."""

    def work(name: str, run: int) -> int:
        space = search_spaces.get(name)
        texts = from_architectures(space, plan.networks(space, run))
        start = time.perf_counter()
        predictive_distributions(rlm.surrogates.get(name, ()), texts, objectives_of(rlm, name))
        waited.append(time.perf_counter() - start)
        return len(texts)

    for name in (name for name in SPACES if name in rlm.surrogates):
        waited: list[float] = []
        for case, timing in timed({name: partial(work, name)}, plan.runs):
            each = waited[-plan.runs :]
            yield case, replace(timing, seconds=float(np.median(each)), spread=max(each) - min(each))


def decoder(rlm: RLM, plan: Plan) -> Cases:
    """From what the encoder made of networks of NAS-Bench-201 to their numbers, without experts."""
    space = search_spaces.get("nasbench201")
    batches = _batches(rlm, space, plan)
    objectives = objectives_of(rlm, space.name)
    network, generator = rlm.network, torch.Generator().manual_seed(plan.seed)
    plain = Plain(network.config).eval()
    with torch.inference_mode():
        memories = [network.encode(batch) for batch in batches]
        states = [_read(network, batch) for batch in batches]

    def quantiles(names: Sequence[str], _: int) -> int:
        return sum(len(decoding.quantile(network, memory, names, MEDIAN)) for memory in memories)

    def samples(names: Sequence[str], number: int, _: int) -> int:
        return sum(len(decoding.sample(network, m, names, number, generator)) for m in memories)

    def plainly(_: int) -> int:
        some = states[: max(1, len(states) // 8)]  # it is slow
        asked = network.config.objective_ids(objectives[:1])[0]
        return sum(len(plain.median(*each, asked, SAMPLES, generator)) for each in some)

    cases: dict[str, Work] = {}
    for k in (1, len(objectives)):
        cases[f"quantile, {k} objectives"] = partial(quantiles, objectives[:k])
        for number in (16, SAMPLES):
            cases[f"{number} samples, {k} objectives"] = partial(samples, objectives[:k], number)
    return timed({**cases, f"plain, {SAMPLES} samples, 1 objectives": plainly}, plan.runs)


def _read(network: Network, ids: Tensor) -> tuple[Tensor, Tensor]:
    """What the encoder makes of texts, and where it only fills up."""
    states, padding = network.states(ids)
    return states.float(), padding[:, 0, 0] < 0


def learning(rlm: RLM, plan: Plan) -> Cases:
    """Fine-tuning on a hundred labels, and tokens a second in pretraining."""
    space = search_spaces.get("nasbench201")
    drawn = plan.networks(space, 0, 2 * BATCH * STEPS)
    told = rlm.predict(space, drawn, ["accuracy"])[:, 0]
    rows = [Row(space.name, str(a), {"accuracy": float(v)}) for a, v in zip(drawn, told, strict=True)]
    start = RLM.load("pretrained")

    def tuned(_: int) -> int:
        start.fine_tune(rows[:LABELS], ["accuracy"])
        return LABELS

    recipe = replace(read_recipe("nas"), start="", epochs=1)
    texts = from_architectures(space, drawn[: recipe.batch_size * STEPS])
    shown = make_dataset(rlm, rows[: len(texts)], TableRecipe(""), texts)

    def pretrained(_: int) -> int:
        fit(rlm.with_objectives(()), [shown], recipe)
        return sum(map(len, shown.ids))

    yield from timed({f"fine-tuning, {LABELS} labels": tuned}, plan.runs, warm=False)
    yield from timed({"pretraining, tokens": pretrained}, plan.runs)


def growth(rlm: RLM, plan: Plan) -> Cases:
    """How time and memory grow: with networks at once, tokens of a text, numbers that are asked, samples."""
    space = search_spaces.get("fbnet")
    objectives = objectives_of(rlm, space.name)
    some = plan.networks(space, 0, BATCH)

    def predict(count: int, run: int) -> int:
        rlm.predict(space, plan.networks(space, run, count), objectives)
        return count

    @torch.inference_mode()
    def read(tokens: int, run: int) -> int:
        rng = np.random.default_rng([plan.seed, run])
        drawn = rng.integers(1, rlm.network.config.vocab_size, (BATCH, tokens))
        memory = rlm.network.encode(torch.from_numpy(drawn))
        return len(decoding.quantile(rlm.network, memory, objectives, MEDIAN))

    def ask(names: Sequence[str], _: int) -> int:
        return len(rlm.predict(space, some, names))

    def draw(samples: int, _: int) -> int:
        return len(rlm.sample(space, some, objectives, samples))

    powers = [10**k for k in range(len(str(plan.most))) if 10**k <= plan.most]
    yield from timed({f"{n:,} networks": partial(predict, n) for n in powers}, plan.runs)
    yield from timed({f"{n:,} tokens": partial(read, n) for n in CROPS}, plan.runs)
    numbers = [n for n in (1, 2, 5, 10, 20) if n <= len(rlm.objectives)]
    asked = {f"{n} objectives": partial(ask, rlm.objectives[:n]) for n in numbers}
    drawn = {f"{n} samples": partial(draw, n) for n in (1, 16, 64, 256)}
    yield from timed(asked | drawn, plan.runs)


def searching(rlm: RLM, plan: Plan) -> Cases:
    """Evaluations of NSGA-II on NAS-Bench-201, and how long they take without network, and without text."""
    space, side = search_spaces.get("nasbench201"), int(plan.evaluations**0.5)

    def work(predictor: Any, run: int) -> int:
        asked = ("accuracy", "latency/pixel3")
        settings = SearchSettings(space.name, asked, population=side, generations=side, seed=plan.seed + run)
        return len(search(space, predictor, settings).architectures)

    cases = {
        "NSGA-II": partial(work, rlm),
        "without network": partial(work, _Reader(rlm.network, rlm.tokenizer)),
        "without network and text": partial(work, _Anything()),
    }
    return timed(cases, plan.runs)


class _Reader(RLM):
    """A model that makes texts and their tokens, and then tells anything."""

    def predict_text(
        self,
        texts: Sequence[str],
        objectives: Sequence[str],
        quantiles: Sequence[float] | None = None,
        batch_size: int = BATCH,
        progress: bool = False,
        space: str = "",
    ) -> np.ndarray:
        read = [str(self.token_ids(text)) for text in texts]
        return _anything(read, objectives, len(quantiles or MEDIAN))


class _Anything:
    """A predictor that knows nothing and takes no time."""

    def predict(
        self,
        space: SearchSpace[Any],
        architectures: Sequence[Any],
        objectives: Sequence[str],
        quantiles: Sequence[float],
    ) -> np.ndarray:
        return _anything(list(map(str, architectures)), objectives, len(quantiles))


def _anything(names: Sequence[str], objectives: Sequence[str], levels: int) -> np.ndarray:
    """Numbers of what is so called, float64 [N, K, levels]."""
    drawn = [[hash((name, o)) % 1000 for o in objectives] for name in names]
    return np.repeat(np.array(drawn, dtype=float)[:, :, None], levels, 2)


def start(rlm: RLM, plan: Plan) -> Cases:
    """A command that predicts one network, from its start to its end."""
    space = search_spaces.get("nasbench201")
    with TemporaryDirectory() as folder:
        asked = Path(folder) / "archs.txt"
        asked.write_text(f"{plan.networks(space, 0, 1)[0]}\n")
        command = [sys.executable, "-m", "nas_rlm", "predict", "--space", space.name, "--archs", str(asked)]
        command += ["--objectives", ",".join(objectives_of(rlm, space.name)), "--model", plan.model]

        def work(_: int) -> int:
            subprocess.run(command, check=True, capture_output=True)
            return 1

        yield from timed({"predict": work}, plan.runs)


def roofline(rlm: RLM, plan: Plan) -> Cases:
    """What the machine multiplies, and what the encoder does of it: billions of operations."""
    kind = torch.bfloat16
    a, b = (torch.randn(SIDE, SIDE, dtype=kind) for _ in range(2))

    def multiplied(_: int) -> int:
        torch.mm(a, b)
        return round(2 * SIDE**3 / 1e9)

    yield from timed({"matrix product, bfloat16": multiplied}, plan.runs)
    for name in SPACES:
        batches = _batches(rlm, search_spaces.get(name), plan)
        done = sum(operations(rlm.network, batch) for batch in batches) / 1e9
        for case, timing in timed({f"encoder, {name}": partial(_encoded, rlm, batches)}, plan.runs):
            yield case, replace(timing, units=done)


def operations(network: Network, ids: Tensor) -> float:
    """Floating-point operations with which padded texts [B, T] are encoded, statements of which are known."""
    config, width = network.config, network.config.width
    places = split_statements(ids.numpy(), network.kinds.numpy()).unique_index if config.statement_layers else ids
    texts, long = places.shape
    matrices = config.size * 12 * width**2 + config.decoder_layers * 2 * width**2
    return texts * (2.0 * long * matrices + config.size * 4.0 * long**2 * width)


PARTS: Mapping[str, Callable[[RLM, Plan], Cases]] = {
    "end-to-end": end_to_end,
    "text": text,
    "encoder": encoder,
    "experts": experts,
    "decoder": decoder,
    "roofline": roofline,
    "learning": learning,
    "search": searching,
    "start": start,
    "growth": growth,
}
KEYS = ("part", "case")


def measured(
    rlm: RLM, plan: Plan, parts: Sequence[str], done: Mapping[tuple[Any, ...], Timing]
) -> Iterator[tuple[tuple[str, str], Timing]]:
    """Parts with their cases, each when all of it is measured; those that are done are left out."""
    for part in parts:
        if any(key[0] == part for key in done):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is guessed is told as fast
            cases = list(PARTS[part](rlm, plan))
        for case, timing in cases:
            yield (part, case), timing
