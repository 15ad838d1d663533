"""export-model: a model as ONNX files."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import Flag, app, load
from nas_rlm.files import check_new_directory
from nas_rlm.utils.extras import require


@app.command(name="export-model")
def export_model(*, out: Path, model: str = "nas", int8: Flag = False) -> None:
    """Write a model as ONNX, for predictions without PyTorch.

    `nas-rlm predict --model OUT` then predicts architectures of a space with onnxruntime. Surrogates are not
    exported: the predictions are those of the network.

    Args:
        out: a new directory.
        model: a checkpoint directory, or the name of a shipped model.
        int8: quantise matrices to eight bits.
    """
    from nas_rlm.model.onnx_export import export_model

    if int8:
        require("onnxruntime", "--int8")
    check_new_directory(out)
    rlm = load(model)
    export_model(rlm, out, int8)
    size = sum(path.stat().st_size for path in out.iterdir())
    omitted = f"; without the surrogates of {', '.join(rlm.surrogates)}" if rlm.surrogates else ""
    print(f"{out}: {size / 2**20:.1f} MiB{omitted}")
