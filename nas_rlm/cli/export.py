"""export: architectures as ONNX files and texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import search_spaces
from nas_rlm.cli.app import Flag, Integer, SpaceList, app, check_minimum, show_progress
from nas_rlm.files import atomic_write, check_new_directory, write_text
from search_spaces.wording import counted


@app.command
def export(
    *,
    space: str,
    out: Path,
    arch: SpaceList = (),
    sample: Integer = 0,
    seed: Integer = 0,
    weights: Flag = False,
) -> None:
    """Write architectures as ONNX files and texts.

    The text is what the model reads.

    Args:
        space: the search space, such as nasbench201, or FILE.py:CLASS or MODULE:CLASS of your own.
        out: a new directory for 000.onnx, 000.txt, … and archs.txt, which has one architecture per line.
        arch: architectures in the notation of the space.
        sample: number of random architectures to add.
        seed: seed of the random architectures.
        weights: write initialised weights, so that the .onnx file runs in any runtime.
    """
    import onnx

    from nas_rlm.text import from_architecture

    for name, value in (("--sample", sample), ("--seed", seed)):
        check_minimum(name, value, 0)
    search_space = search_spaces.get(space)
    rng = np.random.default_rng(seed)
    check_new_directory(out)
    architectures = [search_space.parse(a) for a in arch]
    architectures += [search_space.sample(rng) for _ in range(sample)]
    if not architectures:
        raise ValueError("nothing to export: give --arch ARCHITECTURE … or --sample N")
    for i, architecture in enumerate(show_progress(architectures, "export")):
        with atomic_write(out / f"{i:03d}.onnx") as temporary:
            onnx.save(search_space.to_onnx(architecture, weights=weights), temporary)
        write_text(out / f"{i:03d}.txt", from_architecture(search_space, architecture))
    write_text(out / "archs.txt", "".join(f"{a}\n" for a in architectures))
    print(f"{counted(len(architectures), 'architecture')} in {out}")
