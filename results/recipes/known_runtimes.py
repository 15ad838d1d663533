"""Add the runtimes of tables/devices/real.parquet to a model, as devices that it knows for any network.

    python results/recipes/known_runtimes.py nas runs/runtimes

The table has the names that `nas-rlm profile` gives to devices of any machine. In the model they have names
of this machine, so that another machine's measurements are not taken for these.
"""

import sys
from dataclasses import replace

from nas_rlm import RLM
from nas_rlm.data import read
from nas_rlm.data.network_files import family_of_model

MACHINE = "epyc"
TABLE = "tables/devices/real.parquet"


def machine_name(objective: str) -> str:
    """Return the objective of this machine, such as latency/epyc_openvino_1t of latency/openvino-cpu-1t."""
    kind, _, device = objective.partition("/")
    runtime, _, threads = device.partition("-cpu-")
    return f"{kind}/{MACHINE}_{runtime}_{threads}"


def family_of(name: str) -> str:
    """Return the family of a network of the table, such as own-gpt of own-gpt-256-6-4.onnx."""
    kind, _, rest = name.partition("-")
    return f"{kind}-{rest.partition('-')[0]}" if kind == "own" else family_of_model(kind)


def main(model: str, target: str) -> None:
    """Fit a layer surrogate to the table, and save the model with it."""
    rows = [
        replace(
            row,
            targets={machine_name(name): value for name, value in row.targets.items()},
            group=family_of(row.identifier),
        )
        for row in read(TABLE).rows
    ]
    objectives = sorted({name for row in rows for name in row.targets if name.startswith("latency/")})
    RLM.load(model).fine_tune(rows, objectives, learn="layers").save(target)
    print(f"model with {', '.join(objectives)}: {target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
