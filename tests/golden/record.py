"""Record today's outputs: `python -m tests.golden.record [PART ...] [--folder FOLDER]`.

Inputs that are in inputs.json already stay, so that a new record is of the same ones.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy and torch are imported
    from tests.golden import cases

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(cases.CASES)}; by default all")
    parser.add_argument("--folder", type=Path, default=cases.FOLDER)
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(cases.CASES):
        parser.error(f"there is no part {', '.join(unknown)}: expected some of {', '.join(cases.CASES)}")
    inputs, drawn = cases.FOLDER / "inputs.json", cases.sample_inputs()
    known = json.loads(inputs.read_text()) if inputs.exists() else {}
    _write(inputs, {key: {**value, **known.get(key, {})} for key, value in drawn.items()})
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for part in chosen.parts or cases.CASES:
        found = {}
        for name in cases.CASES[part]:
            with TemporaryDirectory() as folder:
                found[name] = cases.output(part, name, Path(folder))
            print(f"{part}: {name}", flush=True)
        _write(chosen.folder / f"{part}.json", found)


def _write(path: Path, values: dict[str, Any]) -> None:
    """Two levels of keys a line each, floats with all their digits."""
    lines = []
    for key, value in values.items():
        inner = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
        lines.append(f"{json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
