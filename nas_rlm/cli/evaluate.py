"""evaluate: a model's predictions compared with measurements."""

from __future__ import annotations

from pathlib import Path

from nas_rlm.cli.app import CommaList, Flag, Integer, SpaceList, app, check_model, load, register_spaces


@app.command
def evaluate(
    *,
    model: str = "nas",
    data: Path | None = None,
    objectives: CommaList = (),
    samples: Integer = 64,
    validation: Flag = False,
    no_surrogates: Flag = False,
    picture: Path | None = None,
    space: SpaceList = (),
) -> None:
    """Compare predictions with measurements and baselines.

    Prints Spearman and Kendall correlations and the coverage of 80 % intervals of each objective. Baselines
    are FLOPs, parameters and gradient-boosted trees for networks, and length, depth of loops and similar
    programs for programs.

    Args:
        model: a checkpoint directory, or the name of a shipped model.
        data: a parquet table; by default the test rows of the shipped models' tables with spaces on which the
            model was trained.
        objectives: objectives to evaluate; by default all that model and table share.
        samples: number of samples whose median is compared with the model's median; 0 for none, which is much
            faster.
        validation: without --data, use the validation rows, which decided the temperatures, instead of the
            test rows.
        no_surrogates: evaluate only the network, without surrogates.
        picture: draw predicted against measured values on a normal probability scale: .png, .svg, .pdf or
            .jpg.
        space: your own search spaces that rows of the table name, as FILE.py:CLASS or MODULE:CLASS. A row may
            name a space by its name or its location.
    """
    from nas_rlm.data.tables import check_readable
    from nas_rlm.plotting.style import check_picture_path, save_figure

    if picture:
        check_picture_path(picture)
    check_model(model, objectives)
    if data is not None:
        check_readable(data)
    register_spaces(space)

    from nas_rlm.benchmarks.evaluation import evaluate_model, format_evaluations
    from nas_rlm.plotting.probability import draw_probability_plot

    rlm = load(model)
    rlm.surrogates = {} if no_surrogates else rlm.surrogates
    evaluations = evaluate_model(rlm, data, objectives, samples, validation)
    print(format_evaluations(evaluations))
    if picture:
        panels = {f"{e.table}: {e.objective}": e.points for e in evaluations if not e.uid}
        save_figure(draw_probability_plot(panels), picture)
        print(f"picture: {picture}")
