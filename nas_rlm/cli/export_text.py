"""export-text: the texts of ONNX files that the model reads."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import DEFAULT_FILE_LIMITS, FileLimits, InputShapes, app, show_progress
from nas_rlm.files import check_new_directory, write_text
from search_spaces.wording import counted


@app.command
def export_text(
    *files: Path,
    input_shape: InputShapes = (),
    out: Path | None = None,
    limits: FileLimits = DEFAULT_FILE_LIMITS,
) -> None:
    """Write the texts of ONNX files, which the model reads.

    Args:
        files: ONNX files.
        input_shape: shape of an input with open sizes in the file, such as images:1x3x224x224. May be
            repeated. An open first size is a batch of 1; other open sizes stay open in the text.
        out: a new directory for a text of each file, named as the file; by default the texts go to stdout.
        limits: limits on each file.
    """
    from nas_rlm.text import from_onnx
    from nas_rlm.text.canonical import shapes_of_models

    if not files:
        raise ValueError("nothing to export: give ONNX files")
    if out:
        check_new_directory(out)
        names = [file.stem for file in files]
        if len(set(names)) < len(names):
            raise ValueError("two files have one name, so that their texts would too: export them separately")
    shapes = shapes_of_models(files, dict(input_shape))
    texts = [
        from_onnx(file, own, limits=limits.checked())
        for file, own in zip(show_progress(files, "text"), shapes, strict=True)
    ]
    for file, text in zip(files, texts, strict=True):
        if out:
            write_text(out / f"{file.stem}.txt", text)
        else:
            print(text, end="")
    if out:
        print(f"{counted(len(files), 'text')} in {out}")
