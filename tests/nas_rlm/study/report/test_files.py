import matplotlib


def test_a_style_with_latex_that_a_training_sets_does_not_reach_the_picture(open_study, tmp_path):
    study = open_study()
    trial = study.ask()
    with matplotlib.rc_context({"text.usetex": True}):
        study.tell(trial, 70.0)
        study.report()
        assert matplotlib.rcParams["text.usetex"]
    assert (tmp_path / "study" / "pareto.png").stat().st_size > 1000
