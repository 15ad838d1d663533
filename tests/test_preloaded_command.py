import subprocess

import pytest

from tests.preloaded_command import preloaded_command


@pytest.fixture(scope="module")
def command():
    with preloaded_command() as directory:
        yield directory / "nas-rlm"


def run(command, directory, *arguments, **options):
    return subprocess.run(
        [command, *arguments], cwd=directory, capture_output=True, text=True, check=False, **options
    )


def test_a_command_has_the_directory_output_and_exit_code_of_its_caller(command, tmp_path):
    done = run(command, tmp_path, "export", "--space", "nasbench201", "--sample", "1", "--out", "one")
    assert (done.returncode, done.stdout) == (0, "1 architectures in one\n")
    assert (tmp_path / "one" / "archs.txt").is_file()
    done = run(command, tmp_path, "export", "--space", "nasbench210", "--sample", "1", "--out", "two")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'nasbench201'?" in done.stderr
    assert not (tmp_path / "two").exists()


def test_a_command_has_the_environment_of_its_caller(command, tmp_path):
    script = "import os\n\ndef train(trial):\n    return float(os.environ['MINE'])\n"
    (tmp_path / "mine.py").write_text(script)
    search = ("search", "--space", "nasbench201", "--objectives", "accuracy", "--train", "mine.py:train")
    done = run(
        command, tmp_path, *search, "--trials", "1", "--out", "run", env={"MINE": "61.5", "PATH": "/usr/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert "61.5" in (tmp_path / "run" / "trials.csv").read_text()
