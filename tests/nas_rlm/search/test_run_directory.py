import csv
import json
import random
import shutil

import onnx
import pytest
import torch

import search_spaces
from nas_rlm import search_run
from nas_rlm.data.images import read_images
from nas_rlm.plotting import front
from nas_rlm.search import run_directory
from nas_rlm.search.feasibility import estimate_feasibility
from nas_rlm.search.loop import search
from nas_rlm.search.result import SearchResult
from nas_rlm.search.settings import QUANTILE_LEVELS, SearchSettings
from tests.nas_rlm.stubs import StubPredictor
from tests.nas_rlm.training_runs import losses

SPACE = search_spaces.get("nasbench201")
SETTINGS = SearchSettings(
    "nasbench201", ("accuracy", "latency/pixel3"), ("accuracy>=85",), population=12, generations=5
)


def run(out, settings=SETTINGS, resume=False, predictor=None):
    predictor = predictor or StubPredictor()
    result = search(SPACE, predictor, settings, run_directory.open_log(out, settings, resume))
    search_run.write_results(out, SPACE, result, search_run.joint_samples(SPACE, predictor, result))
    return result


def contents(out):
    names = ["settings.json", "log.jsonl", "front.csv", "samples.json", "pareto.png", "hypervolume.png"]
    names += ["report.html"]
    graphs = {p.name: p.read_bytes() for p in (out / "front").iterdir()}
    return {**{n: (out / n).read_bytes() for n in names}, **graphs}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    run(out)
    return out


def test_the_files_of_a_finished_run_directory(finished):
    result = run_directory.read_result(finished)
    front = [result.architectures[i] for i in result.front]
    with open(finished / "front.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["arch", *SETTINGS.objectives] + [
        f"{o}@{q:g}" for o in SETTINGS.objectives for q in QUANTILE_LEVELS
    ]
    assert [r["arch"] for r in rows] == front
    assert [float(r["accuracy"]) for r in rows] == pytest.approx(result.medians[result.front, 0])
    assert sorted(p.name for p in (finished / "front").iterdir()) == [
        *(f"{i:03d}.onnx" for i in range(len(front))),
        "networks.py",
    ]
    for i, name in enumerate(front):
        assert onnx.load(finished / "front" / f"{i:03d}.onnx") == SPACE.to_onnx(SPACE.parse(name))
    lines = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert [line["arch"] for line in lines] == result.architectures
    assert [line["generation"] for line in lines] == [i // 12 for i in range(60)]
    assert 0 < len(run_directory.read_samples(finished, result)) < len(front)
    assert not [p for p in finished.iterdir() if p.name.startswith(".")]


def test_a_search_killed_anywhere_resumes_to_the_same_files(finished, tmp_path):
    log = (finished / "log.jsonl").read_bytes()
    line_ends = [i + 1 for i, byte in enumerate(log) if byte == ord("\n")]
    generation_end = line_ends[23]
    rng = random.Random(0)
    cuts = [
        0,
        1,
        generation_end - 1,
        generation_end,
        generation_end + 1,
        line_ends[30],
        len(log) - 1,
        len(log),
    ]
    cuts += [rng.randrange(len(log)) for _ in range(2)]
    for number, cut in enumerate(cuts):
        out = tmp_path / str(number)
        out.mkdir()
        (out / "settings.json").write_bytes((finished / "settings.json").read_bytes())
        (out / "log.jsonl").write_bytes(log[:cut])
        predictor = StubPredictor()
        search(SPACE, predictor, SETTINGS, run_directory.open_log(out, SETTINGS, True))
        complete_generations = sum(end <= cut for end in line_ends) // 12
        assert len(predictor.predicted) == 60 - 12 * complete_generations
        assert (out / "log.jsonl").read_bytes() == log
    run(out, resume=True)
    assert contents(out) == contents(finished)


def test_a_search_killed_before_its_log_resumes_to_the_same_files(finished, tmp_path):
    run_directory.open_log(tmp_path / "run", SETTINGS, resume=False)
    run(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == contents(finished)


def test_a_predictor_that_fails_leaves_a_log_that_resumes(finished, tmp_path):
    class Failing(StubPredictor):
        def predict(self, *args, **kwargs):
            if self.calls == 3:
                raise RuntimeError("power cut")
            return super().predict(*args, **kwargs)

    with pytest.raises(RuntimeError, match="power cut"):
        run(tmp_path / "run", predictor=Failing())
    assert (tmp_path / "run" / "log.jsonl").read_text().count("\n") == 36
    assert not (tmp_path / "run" / "front.csv").exists()
    assert len(run_directory.read_result(tmp_path / "run").architectures) == 36
    run(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == contents(finished)


def test_a_search_killed_while_its_front_is_written_resumes_to_the_same_files(
    finished, tmp_path, monkeypatch
):
    def power_cut(*_, **__):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(onnx, "save", power_cut)
        with pytest.raises(RuntimeError):
            run(tmp_path / "run")
        assert not (tmp_path / "run" / "front").exists()
    with monkeypatch.context() as patch:
        patch.setattr(front.Figure, "savefig", power_cut)
        with pytest.raises(RuntimeError):
            run(tmp_path / "run", resume=True)
        assert not (tmp_path / "run" / "pareto.png").exists()
        assert not (tmp_path / "run" / "front.csv").exists()
    run(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == contents(finished)
    assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".")]


def test_resuming_a_finished_search_predicts_nothing(finished, tmp_path):
    run(tmp_path / "run")
    predictor = StubPredictor()
    run(tmp_path / "run", resume=True, predictor=predictor)
    assert predictor.predicted == []
    assert contents(tmp_path / "run") == contents(finished)


def test_a_resumed_search_may_have_more_generations_but_not_fewer(tmp_path):
    longer = SearchSettings(**{**vars(SETTINGS), "generations": 8})
    run(tmp_path / "grown")
    predictor = StubPredictor()
    run(tmp_path / "grown", longer, resume=True, predictor=predictor)
    assert len(predictor.predicted) == 36
    run(tmp_path / "straight", longer)
    assert contents(tmp_path / "grown") == contents(tmp_path / "straight")
    with pytest.raises(ValueError, match="would shorten it"):
        run_directory.open_log(tmp_path / "grown", SETTINGS, resume=True)


@pytest.mark.parametrize(
    "changed",
    [{"seed": 1}, {"objectives": ("accuracy",)}, {"population": 13}, {"constraints": ()}, {"model": "other"}],
)
def test_the_directory_of_another_search_is_refused(finished, changed):
    before = contents(finished)
    name = next(iter(changed))
    with pytest.raises(ValueError, match=f"holds another search, with {name}"):
        run_directory.open_log(finished, SearchSettings(**{**vars(SETTINGS), **changed}), resume=True)
    assert contents(finished) == before


def test_the_same_search_again_needs_resume(finished):
    with pytest.raises(ValueError, match="--resume"):
        run_directory.open_log(finished, SETTINGS, resume=False)


@pytest.mark.parametrize("resume", [True, False])
def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path, resume):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="not empty and holds no search"):
        run_directory.open_log(tmp_path, SETTINGS, resume)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match="is a file"):
        run_directory.open_log(tmp_path / "thesis.tex", SETTINGS, resume)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"space": "nasbench201"}', '{"objectives": 3, "constraints": []}']
)
def test_damaged_settings_are_named(tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r"settings\.json is not what"):
        run_directory.open_log(tmp_path, SETTINGS, resume=True)


def test_a_log_of_another_search_is_refused(finished, tmp_path):
    lines = (finished / "log.jsonl").read_text().splitlines(keepends=True)
    run_directory.open_log(tmp_path / "run", SETTINGS, resume=False)
    (tmp_path / "run" / "log.jsonl").write_text("".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(ValueError, match=r"line 1 has .* where this search evaluates"):
        run(tmp_path / "run", resume=True)


def test_a_damaged_log_line_is_shown(finished, tmp_path):
    lines = (finished / "log.jsonl").read_text().splitlines(keepends=True)
    run_directory.open_log(tmp_path / "run", SETTINGS, resume=False)
    (tmp_path / "run" / "log.jsonl").write_text("".join([*lines[:2], '{"arch": 3}\n', *lines[3:]]))
    with pytest.raises(ValueError, match=r"line 3 is not an evaluation: .*arch"):
        run(tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="line 3"):
        run_directory.read_result(tmp_path / "run")


def test_a_directory_without_evaluations_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no search"):
        run_directory.read_result(tmp_path)
    run_directory.open_log(tmp_path / "run", SETTINGS, resume=False)
    with pytest.raises(ValueError, match="evaluated nothing yet"):
        run_directory.read_result(tmp_path / "run")
    assert run_directory.read_samples(tmp_path / "run", SearchResult(SETTINGS)) == {}


def test_an_empty_front_is_written_as_such(tmp_path):
    settings = SearchSettings(**{**vars(SETTINGS), "constraints": ("latency/pixel3<=0.001",)})
    result = run(tmp_path / "run", settings)
    assert len(result.front) == 0
    assert (tmp_path / "run" / "front.csv").read_text().startswith("arch,accuracy,")
    assert list((tmp_path / "run" / "front").glob("*.onnx")) == []
    assert (tmp_path / "run" / "pareto.png").stat().st_size > 10_000


def test_a_log_with_other_evaluations_is_refused(finished, tmp_path):
    log = (finished / "log.jsonl").read_bytes()
    for number, (content, message) in enumerate(
        (
            (log + log.splitlines(keepends=True)[0], "has 61 lines where this search evaluates 60"),
            (log[: log.index(b"\n") + 1] * 2, "line 2 has .* where this search evaluates"),
            (b"{}\n", "line 1 is not an evaluation"),
        )
    ):
        out = tmp_path / str(number)
        out.mkdir()
        (out / "settings.json").write_bytes((finished / "settings.json").read_bytes())
        (out / "log.jsonl").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            search_log = run_directory.open_log(out, SETTINGS, resume=True)
            search(SPACE, StubPredictor(), SETTINGS, search_log)
            search_log.finish()
        assert (out / "log.jsonl").read_bytes() == content


def test_a_file_in_place_of_the_front(tmp_path):
    (tmp_path / "front").write_text("mine")
    with pytest.raises(ValueError, match="front is a file"):
        run_directory.open_log(tmp_path, SETTINGS, resume=True)


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"a": [["x"]]}', '{"a": [1.0]}', '{"a": [[NaN, 1]]}', '{"a": [[1.0]]}'),
        *('{"other": [[1.0, 2.0]]}', "[" * 100_000, f'{{"a": [[{"9" * 400}, 1]]}}'),
    ],
)
def test_damaged_samples_are_named(tmp_path, content):
    (tmp_path / "samples.json").write_text(content)
    with pytest.raises(ValueError, match=r"samples\.json is not what"):
        run_directory.read_samples(tmp_path, SearchResult(SETTINGS, ["a"]))


@pytest.mark.parametrize(
    "quantiles",
    [[None] * 3, ["1", "2", "3"], "123", [True] * 3, [95, 94, 93], [1, 2], [float("nan")] * 3, [9**999] * 3],
)
def test_damaged_numbers_in_the_log_are_shown(finished, tmp_path, quantiles):
    lines = (finished / "log.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    last["predicted"]["accuracy"] = quantiles
    run_directory.open_log(tmp_path / "run", SETTINGS, resume=False)
    (tmp_path / "run" / "log.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    with pytest.raises(ValueError, match="line 60 is not an evaluation"):
        run_directory.open_log(tmp_path / "run", SETTINGS, resume=True)


def test_a_carriage_return_does_not_shift_the_log(finished, tmp_path):
    log = b"\r" + (finished / "log.jsonl").read_bytes()
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "log.jsonl").write_bytes(log[: log.rindex(b"\n", 0, -1) + 1])
    for _ in range(2):
        run(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == log


@pytest.mark.parametrize("damage", [lambda lines: lines * 2, lambda lines: [lines[0].replace("~0", "~9", 1)]])
def test_a_log_with_repeated_or_invalid_architectures_is_refused(finished, tmp_path, damage):
    shutil.copytree(finished, tmp_path / "run")
    lines = (finished / "log.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "log.jsonl").write_text("".join(damage(lines)))
    with pytest.raises(ValueError, match=r"log\.jsonl line \d+: .*(occurs twice|~9)"):
        run_directory.read_result(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("population", "6"),
        ("generations", 3.5),
        ("seed", False),
        ("objectives", "accuracy"),
        ("constraints", {}),
    ],
)
def test_settings_of_a_wrong_type_are_named(finished, tmp_path, name, value):
    stored_settings = json.loads((finished / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps({**stored_settings, name: value}))
    with pytest.raises(ValueError, match=f"settings.json is not what .*{name} is"):
        run_directory.read_settings(tmp_path)


def test_results_are_written_again_from_the_log(finished, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    for name in ("front.csv", "pareto.png", "hypervolume.png", "report.html"):
        (out / name).unlink()
    shutil.rmtree(out / "front")
    result = run_directory.read_result(out)
    search_run.write_results(out, SPACE, result, run_directory.read_samples(out, result))
    assert contents(out) == contents(finished)


def test_a_feasibility_estimate_is_read_back(tmp_path):
    assert run_directory.read_feasibility(tmp_path) is None
    feasibility = estimate_feasibility(SPACE, StubPredictor(), SETTINGS, 20)
    run_directory.write_feasibility(tmp_path, feasibility)
    assert run_directory.read_feasibility(tmp_path) == feasibility
    for content in ("[]", "{", '{"architectures": 3, "ranges": {"a": [1, 2]}, "shares": {}, "share": 1}'):
        (tmp_path / "feasibility.json").write_text(content)
        with pytest.raises(ValueError, match=r"feasibility\.json is not what nas-rlm search writes"):
            run_directory.read_feasibility(tmp_path)


def test_the_networks_of_a_front_can_be_trained(finished, shared_data):
    code = (finished / "front" / "networks.py").read_text()
    namespace: dict = {}
    exec(code, namespace)
    result = run_directory.read_result(finished)
    assert namespace["ARCHITECTURES"] == [result.architectures[i] for i in result.front]
    images = read_images(shared_data / "cifar-10-batches-py")
    x = torch.from_numpy(images.train[:16]).float() / 255 - 0.5
    labels = torch.from_numpy(images.train_labels[:16])
    torch.manual_seed(0)
    module = namespace["network"](0)
    assert sum(p.numel() for p in module.parameters()) == SPACE.params(
        SPACE.parse(namespace["ARCHITECTURES"][0])
    )
    found = losses(module, x, labels, 10)
    assert found[-1] < 0.8 * found[0]
