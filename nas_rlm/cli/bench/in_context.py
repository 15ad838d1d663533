"""bench in-context: a large language model as predictor."""

from __future__ import annotations

import os
from pathlib import Path

from nas_rlm.benchmarks.results import Results
from nas_rlm.cli.app import CommaList, Integer, check_minimum
from nas_rlm.cli.bench.app import bench

DECIMALS = 12  # of numbers in the file of results


@bench.command(name="in-context")
def bench_in_context(
    *,
    data: Path,
    objective: str,
    server: str,
    llm: str,
    shots: CommaList = ("0", "8", "32"),
    rows: Integer = 100,
    seed: Integer = 0,
    key: str = "",
    out: Path | None = None,
) -> None:
    """Predict numbers with a large language model.

    The prompt has measured examples. Any server with OpenAI's chat completions can be queried. Texts of the
    table and their measured values are sent to it.

    Args:
        data: a parquet table; validation rows are predicted, with training rows as examples.
        objective: the objective, such as memory.
        server: base URL of the API, such as http://localhost:8000/v1.
        llm: name of the model on the server.
        shots: numbers of examples in the prompt, such as 0,8,32.
        rows: number of random rows to predict.
        seed: seed of the rows and the examples.
        key: environment variable with the API key, if the server needs one.
        out: file of JSON lines to which answers are added; rows that it has are not queried again.
    """
    from nas_rlm.benchmarks.in_context import KEY_NAMES, Answer, Server, query_server, summarize_answers
    from nas_rlm.data import read

    counts = [int(text) for text in shots if text.isdecimal()]
    if len(counts) < len(shots) or not counts:
        raise ValueError(f"--shots is {','.join(shots)!r}, expected whole numbers such as 0,8,32")
    check_minimum("--rows", rows, 2)
    if key and key not in os.environ:
        raise ValueError(f"--key {key}: there is no such environment variable")
    llm_server = Server(server, llm, os.environ.get(key, "") if key else "")
    settings = {"table": data.stem, "objective": objective, "llm": llm}
    results = Results(out, Answer, settings, KEY_NAMES, decimals=DECIMALS)
    answers = query_server(
        llm_server, read(data), objective, counts, rows, seed, results.records, progress=True
    )
    results.add_all(answers)
    print(f"{'examples':>8}{'rows':>6}{'no number':>11}{'Spearman':>10}{'Kendall':>9}{'tokens':>9}")
    records = {k: answer for k, answer in results.records.items() if k[0] in counts and k[1] == seed}
    for count, s in summarize_answers(records).items():
        correlations = f"{s.spearman:>10.3f}{s.kendall:>9.3f}"
        print(f"{count:>8}{s.rows:>6}{s.without_number:>11}{correlations}{s.tokens:>9,.0f}")
