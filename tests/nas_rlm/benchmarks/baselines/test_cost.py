from nas_rlm.benchmarks import baselines
from nas_rlm.data import Row

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def test_costs_are_counted_where_the_table_has_none():
    counted, given = Row("nasbench201", CELL, {}), Row("theirs", "", {"flops": 5.0, "params": 6.0})
    assert baselines.flops([counted, given]).tolist() == [184_730_240, 5]
    assert baselines.params([counted, given]).tolist() == [1_288_506, 6]
