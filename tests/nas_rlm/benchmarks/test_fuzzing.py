import pytest

from nas_rlm.benchmarks import fuzzing
from nas_rlm.benchmarks.fuzzing import mutate, read_file, run_cases, seed_models
from nas_rlm.cli import main

SEEDS = seed_models()


def test_seed_models_are_read(tmp_path):
    for seed in SEEDS:
        path = tmp_path / "seed.onnx"
        path.write_bytes(seed)
        assert read_file(path, list) == ("read", "")


def test_mutations_depend_on_seed_and_number_alone():
    first = [mutate(SEEDS, 3, k) for k in range(40)]
    assert first == [mutate(SEEDS, 3, k) for k in range(40)]
    assert len(set(first)) > 35
    assert first != [mutate(SEEDS, 4, k) for k in range(40)]


def test_no_file_crashes_or_hangs():
    outcomes = [(outcome, reason) for _, outcome, reason in run_cases(SEEDS, range(300), 7, 20)]
    assert len(outcomes) == 300
    assert not [o for o in outcomes if o[0] in fuzzing.FAILURES]
    assert {outcome for outcome, _ in outcomes} >= {"read", "refused"}


def test_a_crash_and_a_hang_are_counted(monkeypatch):
    def read(path, encode):
        case = path.stat().st_size % 3
        if case == 0:
            import os

            os.abort()
        while case == 1:
            pass
        return "read", ""

    monkeypatch.setattr(fuzzing, "read_file", read)
    outcomes = {outcome for _, outcome, _ in run_cases(SEEDS, range(12), 0, 0.2)}
    assert outcomes == {"crash", "hang", "read"}


def test_the_verb_fails_if_an_exception_is_no_clear_error(monkeypatch, capsys):
    assert main(["bench", "fuzz", "--count", "20"]) == 0
    assert "refused" in capsys.readouterr().out

    def planted(*_, **__):
        raise KeyError("planted")

    monkeypatch.setattr(fuzzing, "from_onnx", planted)
    assert main(["bench", "fuzz", "--count", "3"]) == 2
    output = capsys.readouterr()
    assert "KeyError: 'planted'" in output.out
    assert "3 of 3 files were neither read nor refused" in output.err


@pytest.mark.parametrize("option", [("--count", "0"), ("--limit", "0")])
def test_options_out_of_range_are_refused(option, capsys):
    assert main(["bench", "fuzz", *option]) == 2
    assert option[0] in capsys.readouterr().err
