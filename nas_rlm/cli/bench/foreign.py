"""bench foreign: tokens of networks that torch exports."""

from __future__ import annotations

from nas_rlm.cli.app import CommaList, load, show_progress
from nas_rlm.cli.bench.app import bench
from nas_rlm.utils.validation import suggest


@bench.command(name="foreign")
def bench_foreign(*, model: str = "nas", network: CommaList = ()) -> None:
    """Count tokens of networks that torch exports.

    The text is flat, or has repeated blocks as functions (outlined).

    Args:
        model: model whose tokenizer is used: a checkpoint directory, or the name of a shipped model.
        network: names of reference networks; by default all.
    """
    from nas_rlm.benchmarks.text.tokens import count_exported_tokens
    from nas_rlm.data.reference_networks import NETWORKS, check_dependencies

    for name in network:
        if name not in NETWORKS:
            raise ValueError(f"there is no reference network {name!r}; {suggest(name, NETWORKS)}")
    check_dependencies()
    tokenizer = load(model).tokenizer
    print(f"{'network':<14}{'exporter':<13}{'operators':>10}{'flat':>8}{'outlined':>10}{'unknown':>9}")
    for name in show_progress(network or list(NETWORKS), "foreign"):
        for t in count_exported_tokens(name, tokenizer):
            cells = f"{t.operators:>10,}{t.flat:>8,}{t.outlined:>10,}{t.unknown:>9,}"
            print(f"{name:<14}{t.exporter:<13}{cells}")
