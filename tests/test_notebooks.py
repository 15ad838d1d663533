"""The notebooks run, and their stored outputs are complete and small.

`python -m tests.test_notebooks [NAME ...]` runs notebooks and stores their outputs, without warnings and
progress.
"""

from __future__ import annotations

import re
import sys
import tempfile
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WITH_PICTURES = {"ablations", "own_device", "pareto_densities", "quickstart", "train_for_real"}
MAX_BYTES = 300_000  # of a notebook with its outputs
ABSOLUTE_PATH = re.compile(r"(?<![\w.])/(home|mnt|opt|usr|var|Users)/")
NUM_COLORS = 128  # of a stored picture, which makes it smaller

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with new outputs."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    return NotebookClient(notebook, timeout=300, resources=resources, record_timing=False).execute()


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def has_picture(notebook: nbformat.NotebookNode) -> bool:
    return any("image/png" in output.get("data", {}) for output in outputs(notebook))


@each_notebook
@pytest.mark.usefixtures("quick_processes")
def test_a_notebook_runs_from_top_to_bottom(path, shipped_rlm, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("NAS_RLM_DATA", raising=False)
    notebook = executed(path)
    assert outputs(notebook)
    assert has_picture(notebook) == (path.stem in WITH_PICTURES)


@each_notebook
def test_stored_outputs_are_complete_and_small(path):
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == [*range(1, len(counts) + 1)]
    assert has_picture(notebook) == (path.stem in WITH_PICTURES)
    assert all(o.output_type != "error" and o.get("name") != "stderr" for o in outputs(notebook))
    assert path.stat().st_size < MAX_BYTES


@each_notebook
def test_a_notebook_has_no_path_of_a_machine(path):
    notebook = nbformat.read(path, as_version=4)
    texts = [cell.source for cell in notebook.cells]
    for output in outputs(notebook):
        texts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    text = "\n".join(texts)
    assert not ABSOLUTE_PATH.search(text)
    assert str(ROOT) not in text
    assert tempfile.gettempdir() not in text


def store_outputs(path: Path) -> None:
    """Run a notebook and write it with its outputs."""
    notebook = executed(path)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    for output in outputs(notebook):
        if png := output.get("data", {}).get("image/png"):
            output.data["image/png"] = with_palette(png)
    nbformat.write(notebook, path)


def with_palette(png: str) -> str:
    """Return a base64 PNG with a palette of colours."""
    buffer = BytesIO()
    image = Image.open(BytesIO(b64decode(png))).convert("RGB")
    image.quantize(NUM_COLORS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return b64encode(buffer.getvalue()).decode()


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if path.stem in (sys.argv[1:] or path.stem):
            store_outputs(path)
            print(path.name)
