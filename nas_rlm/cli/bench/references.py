"""bench references: reference values of objectives, for hypervolumes."""

from __future__ import annotations

import json
from pathlib import Path

import search_spaces
from nas_rlm.cli.app import Integer, load, show_progress
from nas_rlm.cli.bench.app import bench
from nas_rlm.files import check_target, read_text, write_text
from search_spaces.wording import counted


@bench.command(name="references")
def bench_references(*, model: str = "nas", count: Integer = 1000, seed: Integer = 0, out: Path) -> None:
    """Propose reference values for hypervolumes.

    They are derived from random architectures of each space.

    Args:
        model: the model that predicts accuracies and latencies: a checkpoint directory, or the name of a
            shipped model.
        count: number of random architectures of each space.
        seed: seed of the architectures.
        out: JSON file; reference values that it has are not changed.
    """
    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.search.objectives import ObjectivePredictor
    from nas_rlm.search.reference_points import propose_reference_values

    check_target(out)
    references = json.loads(read_text(out, "reference values")) if out.exists() else {}
    rlm = load(model)
    for name in show_progress(search_spaces.names(), "references"):
        trained = rlm.trained_on[name].objectives if name in rlm.trained_on else ()
        learned = [o for o in rlm.objectives if o in trained and o.split("/")[0] in ("accuracy", "latency")]
        existing = references.get(name, {})
        new = [o for o in (*learned, *EXACT_OBJECTIVES) if o not in existing]
        if new:
            predictor = ObjectivePredictor(rlm)
            values = propose_reference_values(search_spaces.get(name), predictor, new, count, seed)
            references[name] = {**existing, **values}
    write_text(out, json.dumps(references, indent=1) + "\n")
    print(f"reference values of {counted(len(references), 'space')}: {out}")
