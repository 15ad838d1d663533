"""Wrong arguments are refused before torch is imported."""

import subprocess
import sys

import onnx
import pytest

PROGRAM = (
    "import sys\nsys.modules['torch'] = None\nfrom nas_rlm.cli import main\n"
    "for command in {commands!r}:\n    assert main(command.split()) == 2, command\n"
)
OPEN_SIZES = (
    '<ir_version: 10, opset_import: ["": 21]>'
    "g (float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float[n, 8, i, j] y) { y = Conv(x, k) }"
)
COMMANDS = {
    "predict {file} --objectives acuracy": "unknown objective 'acuracy'; did you mean accuracy",
    "predict nope.onnx --objectives accuracy": "there is no file 'nope.onnx'",
    "predict {file} --objectives accuracy --model nope": "no checkpoint at 'nope'",
    "rank {file} --by acuracy": "unknown objective 'acuracy'",
    "compare nope.onnx": "there is no file 'nope.onnx'",
    "compare {file} --objectives latency/pixel4": "did you mean latency/pixel3",
    "devices --model nope": "no checkpoint at 'nope'",
    "finetune --data nope.parquet --objectives accuracy --out {run}": "there is no file 'nope.parquet'",
    "search --space nasbench20 --objectives accuracy --out {run}": "no search space 'nasbench20'",
    "search --space nasbench201 --objectives acuracy --out {run}": "unknown objective 'acuracy'",
    "search --space nasbench201 --objectives accuracy --algorithm nsga --out {run}": "no algorithm 'nsga'",
    "search --space nasbench201 --objectives accuracy --data nope.parquet --out {run}": "'nope.parquet'",
    "search --space nasbench201 --objectives accuracy --sample -1 --out {run}": "--sample is -1",
    "propose --space nasbench20 --objectives accuracy": "no search space 'nasbench20'",
    "propose --space nasbench201 --objectives accuracy --constraint latency": "latency",
    "predict {damaged} --objectives accuracy": "damaged.onnx' is not an ONNX file: it is damaged",
    "predict {blob} --objectives accuracy": "expected an ONNX file, or a program with an ending such as .py",
    "predict {open} --objectives latency/pixel3": "give --input-shape x:1x3x224x224",
    "rank {file} --by accuracy": "network.onnx' is not an ONNX file: it is empty",
    "compare {file}": "network.onnx' is not an ONNX file: it is empty",
    "compare {open} {open}": "give --input-shape x:1x3x224x224",
    "inspect {damaged}": "damaged.onnx' is not an ONNX file: it is damaged",
    "profile nope.onnx --device onnxruntime-cpu-1t --out {run}.parquet": "there is no file 'nope.onnx'",
}


@pytest.fixture(scope="module")
def error_lines(tmp_path_factory):
    directory = tmp_path_factory.mktemp("errors")
    (directory / "network.onnx").write_bytes(b"")
    (directory / "damaged.onnx").write_bytes(b"\x80" * 99)
    (directory / "blob").write_bytes(b"\x80\0" * 99)
    onnx.save(onnx.parser.parse_model(OPEN_SIZES), directory / "open.onnx")
    places = {"file": directory / "network.onnx", "run": directory / "run", "blob": directory / "blob"}
    places |= {name: directory / f"{name}.onnx" for name in ("damaged", "open")}
    program = PROGRAM.format(commands=[command.format(**places) for command in COMMANDS])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (directory / "run").exists() and not (directory / "run.parquet").exists()
    return dict(zip(COMMANDS, done.stderr.splitlines(), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_error_names_the_argument(error_lines, command):
    assert error_lines[command].startswith("nas-rlm: error: ")
    assert COMMANDS[command] in error_lines[command]
