"""Speed: predictions and their parts, compared with a baseline; training; and growth of time and memory."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from nas_rlm.benchmarks.baselines.uncached_decoder import UncachedDecoder
from nas_rlm.benchmarks.device_speed import time_new_device
from nas_rlm.benchmarks.search.speed import time_searches
from nas_rlm.benchmarks.search.study_speed import time_suggestions
from nas_rlm.benchmarks.timing import Cases, Timing, Work, time_cases
from nas_rlm.data import Row
from nas_rlm.model import decoding
from nas_rlm.model.batching import max_batch_size, pad
from nas_rlm.model.network import Network
from nas_rlm.rlm import RLM
from nas_rlm.surrogates.registry import predictive_distributions
from nas_rlm.text import from_architectures
from nas_rlm.text.statements import split_statements
from nas_rlm.training.dataset import make_dataset
from nas_rlm.training.recipe import TableRecipe, read_recipe
from nas_rlm.training.trainer import fit
from nas_rlm.utils.progress import progress_bar
from nas_rlm.utils.validation import MEDIAN
from search_spaces import SearchSpace

SPACES = ("nasbench201", "nasbench101", "fbnet", "ofa_mbv3", "nds_darts")
MAX_OBJECTIVES = 5  # accuracy and four latencies
BATCH_SIZE = 64
NUM_SAMPLES = 64
NUM_LABELS = 100  # of a fine-tuning
NUM_STEPS = 20  # of pretraining
MAX_TRIALS = 200  # of a study
MATRIX_SIZE = 2048  # rows and columns of the matrix product
TEXT_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)  # tokens
MAX_SETTING = 10**7  # networks, runs or evaluations

PredictNetworks = Callable[[SearchSpace[Any], Sequence[Any]], None]


@dataclass(frozen=True)
class SpeedSettings:
    """What is measured.

    Args:
        count: networks per run.
        runs: number of timed runs, after an untimed one.
        max_count: largest number of networks in the part `growth`.
        evaluations: evaluations of a search, a square number.
        seed: seed of the networks.
        model: name or directory of the model, for commands.

    Raises:
        ValueError: a number is out of range.
    """

    count: int = 1000
    runs: int = 3
    max_count: int = 10_000
    evaluations: int = 10_000
    seed: int = 0
    model: str = "nas"

    def __post_init__(self) -> None:
        minima = {"count": 1, "runs": 1, "max_count": 1, "evaluations": 4, "seed": 0}
        for name, minimum in minima.items():
            if not minimum <= getattr(self, name) <= MAX_SETTING:
                raise ValueError(f"{name} is {getattr(self, name)}, expected {minimum} to {MAX_SETTING:,}")
        if isqrt(self.evaluations) ** 2 != self.evaluations:
            raise ValueError(f"evaluations is {self.evaluations}, expected a square number such as 10000")

    def sample(self, space: SearchSpace[Any], run: int, count: int | None = None) -> list[Any]:
        """Return random architectures, different ones for each run.

        Args:
            space: the search space.
            run: index of the run.
            count: number of architectures; by default that of the settings.
        """
        rng = np.random.default_rng([self.seed, run])
        return [space.sample(rng) for _ in range(count or self.count)]


def measured_objectives(rlm: RLM, space: str) -> list[str]:
    """Return accuracy and up to four latencies of a model, first those on which it was trained in a space.

    Args:
        rlm: the model.
        space: name of the space.

    Raises:
        ValueError: the model has neither accuracy nor latencies.
    """
    trained = rlm.trained_on[space].objectives if space in rlm.trained_on else ()
    ordered = sorted(rlm.objectives, key=lambda name: (name != "accuracy", name not in trained))
    objectives = [name for name in ordered if name == "accuracy" or name.startswith("latency/")]
    if not objectives:
        raise ValueError("the model has no accuracy and no latency: expected a model such as nas or nas-fast")
    return objectives[:MAX_OBJECTIVES]


def time_end_to_end(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time predictions from architectures to numbers, for each space."""

    def work(space: SearchSpace[Any], architectures: Sequence[Any]) -> None:
        rlm.predict(space, architectures, measured_objectives(rlm, space.name))

    yield from time_spaces(work, settings)


def time_spaces(work: PredictNetworks, settings: SpeedSettings) -> Cases:
    """Time work on random architectures of each of `SPACES`, one space after the other.

    Args:
        work: the work, from a space and its architectures.
        settings: numbers of networks and runs.
    """
    for name in SPACES:
        space = search_spaces.get(name)
        by_run = [settings.sample(space, run) for run in range(settings.runs + 1)]
        yield from time_cases({name: partial(_work_on_run, work, space, by_run)}, settings.runs)


def _work_on_run(
    work: PredictNetworks, space: SearchSpace[Any], by_run: Sequence[Sequence[Any]], run: int
) -> int:
    """Do the work on the architectures of a run, and return their number."""
    work(space, by_run[run])
    return len(by_run[run])


def time_text(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time texts and their token ids, on one core, for each space."""

    def work(space: SearchSpace[Any], architectures: Sequence[Any]) -> None:
        for text in from_architectures(space, architectures):
            rlm.token_ids(text)

    yield from time_spaces(work, settings)


def time_encoder(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time the encoder, from token ids to states, for each space."""
    cases = {}
    for name in SPACES:
        batches = _token_batches(rlm, search_spaces.get(name), settings)
        cases[name] = partial(_encode, rlm, batches)
    return time_cases(cases, settings.runs)


@torch.inference_mode()
def _encode(rlm: RLM, batches: Sequence[Tensor], _: int) -> int:
    """Encode batches, and return the number of texts."""
    for batch in batches:
        rlm.network.encode(batch)
    return sum(map(len, batches))


def _token_batches(rlm: RLM, space: SearchSpace[Any], settings: SpeedSettings) -> list[Tensor]:
    """Padded token ids of random networks, as the model reads them."""
    texts = from_architectures(space, settings.sample(space, 0))
    return [torch.from_numpy(pad([ids for _, ids in batch])) for batch in rlm.in_batches(texts)]


def time_surrogates(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time the surrogates, from texts to predictive distributions, for each space that has surrogates."""

    def work(name: str, run: int) -> int:
        space = search_spaces.get(name)
        texts = from_architectures(space, settings.sample(space, run))
        start = time.perf_counter()
        surrogates = rlm.surrogates.get(name, ())
        predictive_distributions(surrogates, texts, measured_objectives(rlm, name))
        elapsed.append(time.perf_counter() - start)
        return len(texts)

    for name in (name for name in SPACES if name in rlm.surrogates):
        elapsed: list[float] = []  # without the time of the texts
        for case, timing in time_cases({name: partial(work, name)}, settings.runs):
            times = elapsed[-settings.runs :]
            yield case, replace(timing, seconds=float(np.median(times)), spread=max(times) - min(times))


def time_decoder(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time quantiles, samples, and samples of a baseline, on encoded networks of NAS-Bench-201."""
    space = search_spaces.get("nasbench201")
    batches = _token_batches(rlm, space, settings)
    objectives = measured_objectives(rlm, space.name)
    network, generator = rlm.network, torch.Generator().manual_seed(settings.seed)
    baseline = UncachedDecoder(network.config).eval()
    with torch.inference_mode():
        memories = [network.encode(batch) for batch in batches]
        states = [_states_and_padding(network, batch) for batch in batches]

    def quantiles(names: Sequence[str], _: int) -> int:
        return sum(len(decoding.quantile(network, memory, names, MEDIAN)) for memory in memories)

    def samples(names: Sequence[str], count: int, _: int) -> int:
        return sum(len(decoding.sample(network, m, names, count, generator)) for m in memories)

    def baseline_samples(_: int) -> int:
        subset = states[: max(1, len(states) // 8)]  # it is slow
        token = network.config.objective_ids(objectives[:1])[0]
        return sum(len(baseline.median(*batch, token, NUM_SAMPLES, generator)) for batch in subset)

    cases: dict[str, Work] = {}
    for k in (1, len(objectives)):
        cases[f"quantile, {k} objectives"] = partial(quantiles, objectives[:k])
        for count in (16, NUM_SAMPLES):
            cases[f"{count} samples, {k} objectives"] = partial(samples, objectives[:k], count)
    cases[f"uncached, {NUM_SAMPLES} samples, 1 objectives"] = baseline_samples
    return time_cases(cases, settings.runs)


def _states_and_padding(network: Network, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Encoder states of texts, and where they are padding."""
    states, padding = network.states(ids)
    return states.float(), padding[:, 0, 0] < 0


def time_training(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time fine-tuning on a hundred labels, and pretraining in tokens."""
    space = search_spaces.get("nasbench201")
    architectures = settings.sample(space, 0, 2 * BATCH_SIZE * NUM_STEPS)
    predicted = rlm.predict(space, architectures, ["accuracy"])[:, 0].tolist()
    rows = [Row(space.name, str(a), {"accuracy": v}) for a, v in zip(architectures, predicted, strict=True)]
    pretrained = RLM.load("pretrained")

    def fine_tune(_: int) -> int:
        pretrained.fine_tune(rows[:NUM_LABELS], ["accuracy"])
        return NUM_LABELS

    recipe = replace(read_recipe("nas"), start="", epochs=1)
    texts = from_architectures(space, architectures[: recipe.batch_size * NUM_STEPS])
    dataset = make_dataset(rlm, rows[: len(texts)], TableRecipe(""), texts)

    def pretrain(_: int) -> int:
        fit(rlm.with_objectives(()), [dataset], recipe)
        return sum(map(len, dataset.ids))

    yield from time_cases({f"fine-tuning, {NUM_LABELS} labels": fine_tune}, settings.runs, warm_up=False)
    yield from time_cases({"pretraining, tokens": pretrain}, settings.runs)


def time_growth(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time growing numbers of networks, of tokens of a text, of objectives and of samples."""
    space = search_spaces.get("fbnet")
    objectives = measured_objectives(rlm, space.name)
    batch = settings.sample(space, 0, BATCH_SIZE)

    def predict_networks(count: int, run: int) -> int:
        rlm.predict(space, settings.sample(space, run, count), objectives)
        return count

    @torch.inference_mode()
    def predict_tokens(length: int, run: int) -> int:
        rng = np.random.default_rng([settings.seed, run])
        ids = rng.integers(1, rlm.network.config.vocab_size, (BATCH_SIZE, length))
        batches = torch.from_numpy(ids).split(max_batch_size(length))
        memories = (rlm.network.encode(batch) for batch in batches)
        return sum(len(decoding.quantile(rlm.network, m, objectives, MEDIAN)) for m in memories)

    def predict_objectives(names: Sequence[str], _: int) -> int:
        return len(rlm.predict(space, batch, names))

    def sample(count: int, _: int) -> int:
        return len(rlm.sample(space, batch, objectives, count))

    powers = range(len(str(settings.max_count)))
    counts = [10**k for k in powers if 10**k <= settings.max_count]
    yield from time_cases({f"{n:,} networks": partial(predict_networks, n) for n in counts}, settings.runs)
    yield from time_cases({f"{n:,} tokens": partial(predict_tokens, n) for n in TEXT_LENGTHS}, settings.runs)
    numbers = [n for n in (1, 2, 5, 10, 20) if n <= len(rlm.objectives)]
    cases = {f"{n} objectives": partial(predict_objectives, rlm.objectives[:n]) for n in numbers}
    sample_cases = {f"{n} samples": partial(sample, n) for n in (1, 16, 64, 256)}
    yield from time_cases(cases | sample_cases, settings.runs)


def time_command(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time the command that predicts one network, from start to end."""
    space = search_spaces.get("nasbench201")
    with TemporaryDirectory() as directory:
        archs = Path(directory) / "archs.txt"
        archs.write_text(f"{settings.sample(space, 0, 1)[0]}\n")
        command = [sys.executable, "-m", "nas_rlm", "predict", "--space", space.name, "--archs", str(archs)]
        objectives = ",".join(measured_objectives(rlm, space.name))
        command += ["--objectives", objectives, "--model", settings.model]

        def work(_: int) -> int:
            subprocess.run(command, check=True, capture_output=True)
            return 1

        yield from time_cases({"predict": work}, settings.runs)


def time_roofline(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time a matrix product and the encoder, in billions of operations."""
    a, b = (torch.randn(MATRIX_SIZE, MATRIX_SIZE, dtype=torch.bfloat16) for _ in range(2))

    def multiply(_: int) -> int:
        torch.mm(a, b)
        return round(2 * MATRIX_SIZE**3 / 1e9)

    yield from time_cases({"matrix product, bfloat16": multiply}, settings.runs)
    for name in SPACES:
        batches = _token_batches(rlm, search_spaces.get(name), settings)
        gflop = sum(count_operations(rlm.network, batch) for batch in batches) / 1e9
        for case, timing in time_cases({f"encoder, {name}": partial(_encode, rlm, batches)}, settings.runs):
            yield case, replace(timing, units=gflop)


def count_operations(network: Network, ids: Tensor) -> float:
    """Return the floating-point operations of encoding texts whose statements are cached.

    Args:
        network: the network.
        ids: padded token ids [B, T].
    """
    config, width = network.config, network.config.width
    positions = (
        split_statements(ids.numpy(), network.kinds.numpy()).unique_index if config.statement_layers else ids
    )
    batch_size, length = positions.shape
    matrices = config.size * 12 * width**2 + config.decoder_layers * 2 * width**2
    return batch_size * (2.0 * length * matrices + config.size * 4.0 * length**2 * width)


def time_search(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time searches."""
    return time_searches(rlm, settings.evaluations, settings.runs, settings.seed)


def time_study(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time the suggestions of a study."""
    return time_suggestions(rlm, min(settings.count, MAX_TRIALS), settings.runs, settings.seed)


def time_device(rlm: RLM, settings: SpeedSettings) -> Cases:
    """Time the command that learns a new device."""
    return time_new_device(settings.model, settings.runs, partial(settings.sample, run=0), settings.seed)


PARTS: Mapping[str, Callable[[RLM, SpeedSettings], Cases]] = {
    "end-to-end": time_end_to_end,
    "text": time_text,
    "encoder": time_encoder,
    "surrogates": time_surrogates,
    "decoder": time_decoder,
    "roofline": time_roofline,
    "learning": time_training,
    "search": time_search,
    "study": time_study,
    "start": time_command,
    "new-device": time_device,
    "growth": time_growth,
}
Key = tuple[str, str]
KEY_NAMES = ("part", "case")


def measure_parts(
    rlm: RLM,
    settings: SpeedSettings,
    parts: Sequence[str],
    finished: Collection[Key] = (),
    progress: bool = False,
) -> Iterator[tuple[Key, Timing]]:
    """Measure some of `PARTS`.

    Args:
        rlm: the model.
        settings: what is measured.
        parts: names of parts.
        finished: keys; a part with one of them is skipped.
        progress: show a progress bar.

    Yields:
        Part and case, and the timing, as soon as all cases of a part are measured.
    """
    finished_parts = {part for part, _ in finished}
    remaining = [part for part in parts if part not in finished_parts]
    for part in progress_bar(remaining, "speed", unit="part", disable=not progress):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as predictions of spaces without training data
            cases = list(PARTS[part](rlm, settings))
        for case, timing in cases:
            yield (part, case), timing
