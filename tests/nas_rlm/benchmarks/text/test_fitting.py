from nas_rlm.benchmarks.text.fitting import texts_benchmark


def test_methods_are_compared_on_rows_that_none_has_seen():
    methods = ("rlm", "surrogate", "ngrams", "median", "tf-idf", "trees")
    found = dict(texts_benchmark("identity", 60, [0], methods))
    by_method = {key[2]: result for key, result in found.items()}
    assert by_method.keys() == set(methods)
    assert all(result.rows == 300 for result in by_method.values())
    assert by_method["rlm"].mae < by_method["trees"].mae < by_method["median"].mae
    assert by_method["rlm"] == by_method["surrogate"]  # of one fit, with its time, as no network is compared
    assert dict(texts_benchmark("identity", 60, [0], methods, finished=found)) == {}


def test_texts_that_are_not_made_of_columns_have_no_trees():
    found = dict(texts_benchmark("bits", 60, [0], ("tf-idf", "trees", "surrogate")))
    assert [key[2] for key in found] == ["tf-idf", "surrogate"]
    assert min(result.spearman for result in found.values()) > 0.7
