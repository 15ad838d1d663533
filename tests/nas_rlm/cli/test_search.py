from nas_rlm.cli import main
from tests.nas_rlm.cli.commands import SEARCH, refused, rows


def test_search_resume_and_plot(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, "--objectives", "accuracy,latency/pixel3", "--out", str(tmp_path / "run")]
    assert main([*arguments, "--resume"]) == 0
    assert str(tmp_path / "run" / "pareto.png") in capsys.readouterr().out
    kept = {n: (tmp_path / "run" / n).read_bytes() for n in ("front.csv", "log.jsonl", "pareto.png")}
    assert kept["log.jsonl"].count(b"\n") == 18
    (tmp_path / "run" / "log.jsonl").write_bytes(kept["log.jsonl"][:1000])
    (tmp_path / "run" / "front.csv").unlink()
    assert main([*arguments, "--resume"]) == 0
    assert {n: (tmp_path / "run" / n).read_bytes() for n in kept} == kept
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").read_bytes() == kept["pareto.png"]
    for name in ("again.svg", "again.pdf", "again.jpg"):
        assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 10_000


def test_search_refuses_the_folder_of_another(tmp_path, model, capsys):
    arguments = [*SEARCH, *model, "--objectives", "accuracy", "--out", str(tmp_path / "run")]
    main(arguments)
    assert "--resume" in refused(capsys, *arguments)
    assert "seed 0 where 1" in refused(capsys, *arguments, "--resume", "--seed", "1")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("notes")
    assert "holds no search" in refused(capsys, *arguments[:-1], tmp_path / "mine", "--resume")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_search_with_constraints_that_nothing_meets_says_so(tmp_path, model, capsys):
    bound = ("--constraint", "latency/pixel3<=-1")
    line = refused(capsys, *SEARCH, *model, *bound, "--objectives", "accuracy", "--out", tmp_path / "run")
    assert "none within latency/pixel3<=-1" in line
    assert not (tmp_path / "run" / "front.csv").exists()


def test_the_shipped_model_searches(shipped_rlm, tmp_path):
    arguments = [
        *SEARCH,
        "--objectives",
        "accuracy,latency/pixel3,latency/eyeriss",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(arguments) == 0
    accuracies = [float(r["accuracy"]) for r in rows(tmp_path / "run" / "front.csv")]
    assert accuracies == sorted(accuracies, reverse=True)
    assert 80 < accuracies[0] < 96
