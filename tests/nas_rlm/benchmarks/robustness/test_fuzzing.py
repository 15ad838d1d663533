import os

import onnx
import pytest

from nas_rlm.benchmarks.robustness import fuzzing
from nas_rlm.benchmarks.robustness.fuzzing import read_file, run_cases, seed_models
from nas_rlm.cli import main

SEEDS = seed_models()


def planted(*_, **__):
    raise KeyError("planted")


def test_seed_models_are_read(tmp_path):
    for seed in SEEDS:
        path = tmp_path / "seed.onnx"
        path.write_bytes(seed)
        assert read_file(path, list) == ("read", "")


def test_files_are_seeds_if_they_are_small_models(tmp_path):
    (tmp_path / "m.onnx").write_bytes(SEEDS[0])
    (tmp_path / "text.onnx").write_text("no model")
    assert seed_models([tmp_path / "m.onnx"]) == [*SEEDS, SEEDS[0]]
    with pytest.raises(ValueError, match="is not an ONNX file"):
        seed_models([tmp_path / "text.onnx"])
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(fuzzing.MAX_FUZZED_BYTES + 1)
    with pytest.raises(ValueError, match="more than the limit of"):
        seed_models([tmp_path / "large.onnx"])


def test_no_file_crashes_or_hangs():
    outcomes = [(outcome, reason) for _, outcome, reason in run_cases(SEEDS, range(300), 7, 20)]
    assert len(outcomes) == 300
    assert not [o for o in outcomes if o[0] in fuzzing.FAILURES]
    assert {outcome for outcome, _ in outcomes} >= {"read", "refused"}


def test_a_crash_and_a_hang_are_counted(monkeypatch):
    def read(path, *_):
        case = path.stat().st_size % 3
        if case == 0:
            os._exit(1)
        while case == 1:
            pass
        return "read", ""

    monkeypatch.setattr(fuzzing, "read_file", read)
    outcomes = [outcome for _, outcome, _ in run_cases(SEEDS, range(12), 0, 1)]
    assert len(outcomes) == 12
    assert set(outcomes) == {"crash", "hang", "read"}


def test_too_much_memory_is_a_crash(monkeypatch):
    monkeypatch.setattr(fuzzing, "from_onnx", lambda *_, **__: bytearray(2 * fuzzing.MAX_MEMORY))
    ((_, outcome, reason),) = run_cases(SEEDS, [0], 0, 20)
    assert outcome == "crash"
    assert "MemoryError" in reason


@pytest.mark.parametrize("step", ["from_onnx", "graph_features"])
def test_an_exception_of_each_step_is_a_traceback(monkeypatch, tmp_path, step):
    path = tmp_path / "m.onnx"
    path.write_bytes(SEEDS[0])
    monkeypatch.setattr(fuzzing, step, planted)
    outcome, reason = read_file(path, list)
    assert outcome == "traceback"
    assert "KeyError: 'planted'" in reason


def test_a_text_that_onnx_does_not_parse_is_a_traceback(monkeypatch, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(SEEDS[0])

    def refuse(text):
        raise onnx.parser.ParseError("planted")

    monkeypatch.setattr(onnx.parser, "parse_model", refuse)
    assert read_file(path, list)[0] == "traceback"


def test_a_missing_file_is_refused(tmp_path):
    assert read_file(tmp_path / "m.onnx", list)[0] == "refused"


def test_the_verb_counts_and_keeps_failures(monkeypatch, tmp_path, capsys):
    out = tmp_path / "fuzz" / "results.jsonl"
    assert main(["bench", "fuzz", "--count", "20", "--out", str(out)]) == 0
    assert "refused" in capsys.readouterr().out
    assert [file.name for file in out.parent.iterdir()] == ["results.jsonl"]
    monkeypatch.setattr(fuzzing, "from_onnx", planted)
    with pytest.raises(SystemExit) as error:
        main(["bench", "fuzz", "--count", "3", "--seed", "1", "--out", str(out)])
    assert error.value.code == 1
    assert "KeyError: 'planted'" in capsys.readouterr().out
    kept = sorted(file.name for file in out.parent.glob("*.onnx"))
    assert kept == [f"traceback-1-{k}.onnx" for k in range(3)]


@pytest.mark.parametrize("option", [("--count", "0"), ("--limit", "0"), ("--limit", "nan"), ("--seed", "-1")])
def test_options_out_of_range_are_refused(option, capsys):
    assert main(["bench", "fuzz", *option]) == 2
    assert option[0] in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nothing", "directory", "pipe", "empty", "text", "no graph"])
def test_other_seeds_have_one_clear_error(name, tmp_path, capsys):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("no model")
    (tmp_path / "no graph").write_bytes(onnx.ModelProto(ir_version=10).SerializeToString())
    assert main(["bench", "fuzz", str(tmp_path / name), "--count", "2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert f"{name}'" in captured.err and "ONNX" in captured.err
