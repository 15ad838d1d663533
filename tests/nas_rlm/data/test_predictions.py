import csv

import numpy as np

from nas_rlm.data.predictions import predictions_csv


def test_predictions_as_csv_keep_commas_and_digits():
    names = ['{"adjacency": "01", "ops": []}', "a,b"]
    medians = np.array([[93.123, 1e-7], [10.0, 1.2345e9]])
    text = predictions_csv(names, ["accuracy", "flops"], medians, (0.25,), medians[:, :, None] / 2)
    rows = list(csv.reader(text.splitlines()))
    assert rows[0] == ["arch", "accuracy", "flops", "accuracy@0.25", "flops@0.25"]
    assert [r[0] for r in rows[1:]] == names
    assert [[float(v) for v in r[1:]] for r in rows[1:]] == [
        [93.123, 1e-7, 46.5615, 5e-8],
        [10, 1.2345e9, 5, 6.1725e8],
    ]


def test_predictions_without_quantiles():
    assert predictions_csv(["x"], ["accuracy"], np.array([[90.0]])) == "arch,accuracy\nx,90\n"
    assert predictions_csv([], ["accuracy"], np.empty((0, 1))) == "arch,accuracy\n"


def test_fewer_digits_leave_costs_exact():
    medians = np.array([[93.12345678, 47_104_640]])
    text = predictions_csv(["x"], ["accuracy", "flops"], medians, (0.9,), medians[:, :, None], digits=5)
    assert text.splitlines()[1] == "x,93.123,47104640,93.123,47104640"
