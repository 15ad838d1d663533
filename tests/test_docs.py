"""Run the Python and shell blocks of README.md and of the pages under docs/.

The blocks of a page run from top to bottom in one temporary directory, and its Python blocks share
their names. Three marks in the source of a page change what is run:

- a block with a title, such as ```` ```python title="space.py" ````, is written to that file;
- `<!-- skip: long -->` before a block runs it only with `pytest -m long`;
- `<!-- skip: REASON -->` before a block never runs it.

Shell blocks run nas-rlm by `tests.preloaded_python`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.example import SybilFailure
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = RawFencedCodeBlockLexer(re.compile(r" *(?P<language>\w+)(?P<options>[^\n]*)\n"))
TITLE = re.compile(r'title="([^"]+)"')
SKIP = re.compile(r"<!--\s*skip:\s*(.+?)\s*-->\s*\Z")
LONG = "long"
SECONDS, LONG_SECONDS = 300, 3600


def run_shell(example: Example) -> str | None:
    limit = LONG_SECONDS if skip_reason(example) == LONG else SECONDS
    command = ["bash", "-euo", "pipefail", "-c", example.parsed]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
    )
    return f"exit code {done.returncode}\n{done.stdout}" if done.returncode else None


def write_file(example: Example) -> None:
    path = Path(TITLE.search(example.region.lexemes["options"])[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(example.parsed)


EVALUATORS = {"python": PythonEvaluator(), **dict.fromkeys(("bash", "sh", "shell"), run_shell)}


def blocks(document: Document) -> Iterator[Region]:
    for region in FENCED(document):
        titled = TITLE.search(region.lexemes["options"])
        region.evaluator = write_file if titled else EVALUATORS.get(region.lexemes["language"])
        region.parsed = region.lexemes["source"]
        if region.evaluator:
            yield region


def skip_reason(example: Example) -> str | None:
    comment = SKIP.search(example.document.text[: example.start])
    return comment[1] if comment else None


def examples(page: Path, long: bool) -> list[Example]:
    """The blocks of a page that run, with or without those that take long."""
    skipped = {None, LONG} if long else {None}
    return [e for e in Document.parse(str(page), blocks) if skip_reason(e) in skipped]


def runs() -> Iterator[object]:
    """Each page that has blocks to run, and again with its long blocks where it has any."""
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        short, all_blocks = examples(page, long=False), examples(page, long=True)
        if short:
            yield pytest.param(page, False, id=name)
        if len(all_blocks) > len(short):
            yield pytest.param(page, True, id=f"{name}-long", marks=pytest.mark.long)


@pytest.fixture
def directory(tmp_path, monkeypatch, preloaded):
    """A temporary working directory, with the commands of this environment and its own modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(preloaded), os.path.dirname(sys.executable), os.environ["PATH"]])
    )
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(("page", "long"), list(runs()))
def test_the_blocks_of_a_page_run(page, long, directory):
    for example in examples(page, long):
        example.evaluate()


MARKED = """# A page

```python title="twice.py"
def twice(x):
    return 2 * x
```

```python
from twice import twice

y = twice(4)
```

1. In a list:

    ```python
    open("y.txt", "w").write(str(y))
    ```

```bash
grep 8 y.txt
```

<!-- skip: long -->
```bash
touch long.txt
```

<!-- skip: needs a phone -->
```bash
false
```

```text
not run
```
"""


@pytest.mark.parametrize("long", [False, True])
def test_marks_decide_what_runs(long, directory):
    page = directory / "page.md"
    page.write_text(MARKED)
    for example in examples(page, long):
        example.evaluate()
    assert (directory / "y.txt").read_text() == "8"
    assert (directory / "long.txt").exists() == long


def test_a_failing_shell_block_is_reported_with_its_line_and_output(directory):
    page = directory / "page.md"
    page.write_text("# A page\n\n```bash\necho some output\nfalse\n```\n")
    (example,) = examples(page, long=False)
    with pytest.raises(SybilFailure, match=r"page\.md, line 3(?s:.*)exit code 1\nsome output"):
        example.evaluate()


def test_a_failing_python_block_is_reported_with_its_line(directory):
    page = directory / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n1 / 0\n```\n")
    (example,) = examples(page, long=False)
    with pytest.raises(ZeroDivisionError) as error:
        example.evaluate()
    assert (error.traceback[-1].path, error.traceback[-1].lineno + 1) == (page, 5)
