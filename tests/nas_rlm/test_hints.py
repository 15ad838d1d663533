from nas_rlm.hints import hint


def test_near_names_are_offered_best_first():
    known = ["accuracy", "latency/pixel2", "latency/pixel3", "latency/eyeriss"]
    assert hint("flop", ["flops", "flops"]) == "did you mean flops?"
    assert hint("latency/pixel3a", known).startswith("did you mean latency/pixel3, latency/pixel2")


def test_without_a_near_name_some_are_listed():
    assert hint("zzz", ["accuracy", "flops"]) == "known: accuracy, flops"
    assert hint("zzz", [f"accuracy/{i}" for i in range(9)]).endswith("accuracy/5, …")
    assert hint("zzz", []) == "known: none"
