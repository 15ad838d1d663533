import numpy as np
import pytest

import search_spaces
from nas_rlm.benchmarks import baselines
from nas_rlm.benchmarks.new_spaces import METHODS, NewSpace, format_results
from nas_rlm.cli import main
from nas_rlm.data import Row, Table, write
from nas_rlm.data.row_texts import texts_of_rows
from nas_rlm.data.synthetic import graph_features_of_texts
from nas_rlm.metrics import kendall
from nas_rlm.surrogates.fitting import fit_graph_surrogates


def table(name, n, seed=0):
    """Return a table whose accuracy increases with parameters."""
    space, rng = search_spaces.get(name), np.random.default_rng(seed)
    drawn = [space.sample(rng) for _ in range(n)]
    accuracy = [60 + 5 * np.log10(space.params(a)) for a in drawn]
    rows = [Row(name, str(a), {"accuracy": v}) for a, v in zip(drawn, accuracy, strict=True)]
    return Table(name, rows)


@pytest.fixture(scope="module")
def surrogates():
    return fit_graph_surrogates(
        [*table("nasbench101", 60).rows, *table("nasbench201", 40).rows], ["accuracy"]
    )


def test_a_space_is_predicted_from_others(surrogates):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    space = NewSpace(table("nasbench201", 90, seed=1), "accuracy", surrogates, 60, 25)
    assert space.surrogates.keys() == {"nasbench101"}
    found = {
        ("cells", labels, method): [result]
        for labels in (0, 25)
        for (method, _), result in space.run(labels, [0])
    }
    assert [m for _, n, m in found if n] == list(METHODS)
    assert found["cells", 25, "params"][0].kendall > 0.99
    assert found["cells", 0, "surrogate"][0].kendall > 0.6
    assert found["cells", 25, "surrogate"][0].kendall > 0.8
    result = found["cells", 25, "surrogate"][0]
    assert 0.5 < result.coverage <= 1 and 0.4 < result.best_coverage <= 1
    assert [m for (m, _), _ in space.run(25, [0], {(m, 0) for m in METHODS[:-1]})] == ["surrogate"]
    lines = format_results(found).splitlines()
    assert lines[0].split() == ["0", "labels", *METHODS, "coverage", "of", "the", "best"]
    assert lines[1].split()[0] == "cells" and lines[2].startswith("mean") and "less the best" in lines[4]
    with pytest.raises(ValueError, match="labels of 90 rows"):
        NewSpace(table("nasbench201", 90, seed=1), "accuracy", surrogates, 60, 100)


def test_learners_on_genes_and_cells():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    rows = table("nasbench201", 100, seed=2).rows
    values = np.array([row.targets["accuracy"] for row in rows])
    train = np.arange(50)
    genes = baselines.gene_features(rows, graph_features_of_texts(texts_of_rows(rows)))
    graf = baselines.graf_features(rows)
    assert genes.shape == (100, 6 * 5 + 3) and graf.shape == (100, 4 + 4 * 15)
    for predicted in (
        baselines.gene_process(genes, train, values[train]),
        baselines.gene_boosting(genes, train, values[train]),
        baselines.graf_forest(graf, train, values[train]),
    ):
        assert kendall(predicted[50:], values[50:]) > 0.6


def test_graf_features_of_a_chain():
    cell = '{"adjacency": "0100001000010000", "ops": ["input", "conv3x3-bn-relu", "maxpool3x3", "output"]}'
    other = '{"adjacency": "010001000", "ops": ["input", "conv1x1-bn-relu", "output"]}'
    rows = [Row("nasbench101", text, {}) for text in (cell, other)]
    first, second = baselines.graf_features(rows)
    assert first[:3].tolist() == [0, 1, 1] and second[:3].tolist() == [1, 0, 0]
    every = slice(-4, None)  # of the subset of all operators
    assert first[every].tolist() == [3, 2, 2, 2] and second[every].tolist() == [2, 1, 1, 1]


def test_the_command(tmp_path, capsys, tiny_checkpoint):
    write(tmp_path / "cells.parquet", table("nasbench201", 40).rows)
    arguments = ["bench", "new-spaces", "--model", str(tiny_checkpoint)]
    assert main([*arguments, "--labels", "0"]) == 2
    assert "nothing to predict" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "cells.parquet"), "--labels", "0,x"]) == 2
    assert "--labels has 'x'" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "cells.parquet"), "--labels", "0", "--objectives", "loss"]) == 2
    assert "no table has loss" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "cells.parquet"), "--labels", "0"]) == 2
    assert "no surrogates of other spaces than nasbench201" in capsys.readouterr().err
