"""bench: programs that a model has not seen, and numbers that large language models tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import Names, Whole
from nas_rlm.cli.bench import bench
from nas_rlm.utils.validation import suggest


@bench.command(name="in-context")
def bench_in_context(
    *,
    data: Path,
    objective: str,
    server: str,
    llm: str,
    shots: Names = ("0", "8", "32"),
    asked: Whole = 100,
    seed: Whole = 0,
    key: str = "",
    out: Path | None = None,
) -> None:
    """Ask a large language model for numbers, with measured examples in its prompt.

    Any server that speaks OpenAI's chat completions can be asked; what is sent there are texts of the table
    and their numbers.

    Args:
        data: a table; its rows are split as for training, and the validation side is asked about.
        objective: the number, such as memory.
        server: its address, such as http://localhost:8000/v1.
        llm: the model, as the server calls it.
        shots: counts of examples in a prompt, such as 0,8,32.
        asked: so many rows are asked about.
        seed: of the rows and the examples.
        key: the environment variable that holds the key of the server, where it wants one.
        out: a file of JSON lines to which each answer is added; what is there already is not asked again.
    """
    import os

    from nas_rlm.benchmarks.in_context import KEYS, Answer, Server, answers, scores
    from nas_rlm.data import read

    counts = [int(one) for one in shots if one.isdecimal()]
    if len(counts) < len(shots) or not counts:
        raise ValueError(f"--shots is {','.join(shots)!r}, expected counts such as 0,8,32")
    if asked < 2:
        raise ValueError(f"--asked is {asked}, expected at least 2")
    if key and key not in os.environ:
        raise ValueError(f"--key {key}: there is no such environment variable")
    where = Server(server, llm, os.environ.get(key, "") if key else "")
    setting = {"table": data.stem, "objective": objective, "llm": llm}
    results = Results(out, Answer, setting, KEYS, places=12)
    done = results.found
    for one, answer in answers(where, read(data), objective, counts, asked, seed, done, progress=True):
        results.add(one, answer)
    print(f"{'examples':>8}{'rows':>6}{'no number':>11}{'Spearman':>10}{'Kendall':>9}{'tokens':>9}")
    told = {one: answer for one, answer in results.found.items() if one[0] in counts and one[1] == seed}
    for count, (rows, silent, rho, tau, tokens) in scores(told).items():
        print(f"{count:>8}{rows:>6}{silent:>11}{rho:>10.3f}{tau:>9.3f}{tokens:>9,.0f}")


@bench.command(name="programs")
def bench_programs(
    *,
    table: str,
    split: str = "program",
    seeds: Whole = 5,
    methods: Names = (),
    recipe: str = "programs",
    folder: Path = Path("runs/programs"),
    out: Path | None = None,
    picture: Path | None = None,
    objective: str = "",
) -> None:
    """Learn what programs take from a table, and tell it of others, beside baselines.

    Args:
        table: one of the recipe's tables, such as leetcode_python.
        split: what is not among those that are learnt from: program, or problem with all its programs.
        seeds: so many sides and trainings, with seeds from 0.
        methods: some of length, loops, neighbours, words (the expert alone), network (alone) and rlm (both).
        recipe: of the training: a YAML file, or a shipped one's name.
        folder: for the trained models; a training that was interrupted goes on.
        out: a file of JSON lines to which each result is added; what is there already is not done again.
        picture: draw how the models rank programs within each problem.
        objective: of the picture; by default the table's first number.
    """
    from nas_rlm.benchmarks.programs import KEYS, METHODS, SPLITS, Judgement, ranked, trials
    from nas_rlm.benchmarks.ranking import draw_within
    from nas_rlm.data import tables
    from nas_rlm.plotting.style import check_picture_path, save_figure
    from nas_rlm.training.recipe import read_recipe

    if split not in SPLITS:
        raise ValueError(f"--split is {split!r}; {suggest(split, SPLITS)}")
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}, expected at least 1")
    for name in methods:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r}; {suggest(name, METHODS)}")
    if picture:
        check_picture_path(picture)
    read = read_recipe(recipe)
    path = tables.data_directory() / read.for_table(table).tables[0].path
    if objective and objective not in (known := tables.read(path).objectives):
        raise ValueError(f"{table} has no {objective!r}; {suggest(objective, known)}")
    results = Results(out, Judgement, {"table": table, "recipe": recipe}, KEYS)
    asked = methods or METHODS
    for key, judgement in trials(path, read, folder, split, range(seeds), asked, results.found):
        results.add(key, judgement)
    found = [
        (key, one)
        for key, one in results.found.items()
        if key[0] == split and key[2] in asked and key[3] < seeds
    ]
    print(f"{table} by {split}, mean and deviation of {seeds} seeds")
    print(
        f"{'objective':<22}{'method':<12}{'Spearman':>14}{'Kendall':>14}{'interval':>9}{'good':>6}{'best':>6}{'luck':>6}"
    )
    for objective, method in dict.fromkeys((key[1], key[2]) for key, _ in found):
        some = [one for key, one in found if key[1:3] == (objective, method)]
        pairs = [[getattr(one, name) for one in some] for name in ("spearman", "kendall")]
        shown = "".join(f"{np.mean(p):>8.3f} ±{np.std(p):.3f}" for p in pairs)
        rest = [
            float(np.mean([getattr(one, name) for one in some]))
            for name in ("coverage", "good", "best", "lucky")
        ]
        print(f"{objective:<22}{method:<12}{shown}{rest[0]:>9.2f}" + "".join(f"{v:>6.2f}" for v in rest[1:]))
    if picture:
        drawn, counted = ranked(path, read, folder, split, range(seeds), objective)
        save_figure(draw_within(counted, f"{drawn} of {table}, by {split}"), picture)
        print(f"picture: {picture}")
