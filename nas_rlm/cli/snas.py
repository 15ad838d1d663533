"""snas generate: trained networks of the SNAS space."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from nas_rlm.cli.app import Integer, app, check_minimum
from nas_rlm.files import check_target
from search_spaces.wording import counted

snas = app.command(App(name="snas", help="Train random networks of the SNAS space."))


@snas.command
def generate(
    *,
    images: Path,
    out: Path,
    count: Integer,
    steps: Integer = 32,
    batch_size: Integer = 128,
    precision: str = "bfloat16",
    device: str = "cpu",
    seed: Integer = 0,
) -> None:
    """Train random networks for a few steps each.

    A JSON record of each is appended to a file. The same command continues an interrupted run. A network that
    fails has a record with its error.

    Args:
        images: directory of CIFAR-10 in its Python format, or of Fashion-MNIST.
        out: file of JSON lines.
        count: number of records that the file has in the end.
        steps: training steps of each network.
        batch_size: images per step.
        precision: bfloat16 (mixed precision) or float32.
        device: cpu or cuda.
        seed: seed of the networks, their weights and the batches.
    """
    from nas_rlm.data import snas
    from nas_rlm.data.images import read_images

    check_minimum("--count", count, 1)
    check_target(out)
    budget = snas.Budget(steps, batch_size, precision=precision, device=device, seed=seed)
    num_records, num_failed = snas.generate(read_images(images), out, count, budget)
    print(f"{counted(num_records, 'record')}, {num_failed} of them failed: {out}")
