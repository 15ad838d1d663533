from nas_rlm.study.report.results import error_type, failure_summary, failures_by_type


def test_failures_are_grouped_by_the_type_of_their_errors(open_study):
    study = open_study()
    assert failure_summary(study.trials) == ""
    failures = [ValueError("no data"), "machine 3: no memory", KeyboardInterrupt(), ValueError("<b>")]
    for trial, failure in zip(study.ask(5), [*failures, None], strict=True):
        study.tell(trial, failure=failure) if failure else study.tell(trial, 50.0)
    found = {kind: [t.number for t in trials] for kind, trials in failures_by_type(study.trials).items()}
    assert found == {"ValueError": [0, 3], "": [1], "KeyboardInterrupt": [2]}
    counts = "4 failed (2 ValueError, 1 others, 1 KeyboardInterrupt)"
    assert failure_summary(study.trials) == f"{counts}, the last one: ValueError: <b>"
    assert failure_summary(study.trials[:1]) == "1 failed, the last one: ValueError: no data"


def test_the_type_of_an_error_is_before_its_message():
    assert error_type("RuntimeError: CUDA: out") == "RuntimeError"
    assert error_type("KeyboardInterrupt") == "KeyboardInterrupt"
    assert error_type("no memory: 3 GB") == error_type("") == error_type("<b>: x") == ""
