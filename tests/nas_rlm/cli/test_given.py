import numpy as np
import pytest

import nas_rlm
from nas_rlm.cli import main
from nas_rlm.data import Row, write
from tests.nas_rlm.cli.commands import ARCHS, SPACE, refused, rows

NAME = "latency/pixel3"


def predicted(tmp_path, *arguments):
    out = tmp_path / "out.csv"
    assert main([*map(str, arguments), "--objectives", "latency/eyeriss", "--out", str(out)]) == 0
    return [float(row["latency/eyeriss"]) for row in rows(out)]


def test_a_number_for_all_architectures(tmp_path, model, archs, tiny_checkpoint):
    found = predicted(tmp_path, "predict", *model, *archs, "--given", f"{NAME}=2.5")
    expected = nas_rlm.RLM.load(tiny_checkpoint).predict(SPACE, ARCHS, ["latency/eyeriss"], given={NAME: 2.5})
    assert found == pytest.approx(expected[:, 0])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_of_a_table(tmp_path, model, archs, tiny_checkpoint, suffix):
    data = tmp_path / f"measured.{suffix}"
    if suffix == "csv":
        data.write_text(
            f"arch,{NAME}\n" + "".join(f"{a},{1 + i}\n" for i, a in enumerate(ARCHS[:4])) + f"{ARCHS[4]},\n"
        )
    else:
        write(data, [Row("nasbench201", a, {NAME: 1.0 + i}) for i, a in enumerate(ARCHS[:4])])
    found = predicted(tmp_path, "predict", *model, *archs, "--given", NAME, "--given-data", data)
    given = {NAME: [1.0, 2.0, 3.0, 4.0, np.nan, np.nan]}
    expected = nas_rlm.RLM.load(tiny_checkpoint).predict(SPACE, ARCHS, ["latency/eyeriss"], given=given)
    assert found == pytest.approx(expected[:, 0], rel=1e-3)


def test_rank_uses_given_numbers(tmp_path, model, archs, capsys):
    arguments = [*model, *archs, "--by", "latency/eyeriss", "--given", f"{NAME}=2.5"]
    assert main(["rank", *arguments]) == 0
    values = [float(line.rsplit(",", 1)[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert values == sorted(values) and len(values) == len(ARCHS)


def test_numbers_that_cannot_be_used_are_refused(tmp_path, model, archs, capsys):
    command = ("predict", *model, *archs, "--objectives", "accuracy")
    data = tmp_path / "measured.csv"
    data.write_text(f"arch,{NAME}\n{ARCHS[0]},fast\n{ARCHS[1]},1\n{ARCHS[2]},slow\n")
    assert "'latency/pixel3=fast' is not NAME=NUMBER" in refused(capsys, *command, "--given", f"{NAME}=fast")
    assert "has no value" in refused(capsys, *command, "--given", NAME)
    assert "is not used" in refused(capsys, *command, "--given-data", data)
    assert "line 2: latency/pixel3 is 'fast'; line 4: latency/pixel3 is 'slow': expected a number" in refused(
        capsys, *command, "--given", NAME, "--given-data", data
    )
    unknown = refused(capsys, *command, "--given", "latency/pixel4=2")
    assert "'latency/pixel4', which the model does not know; did you mean latency/pixel3" in unknown
    assert "no column 'latency/eyeriss'" in refused(
        capsys, *command, "--given", "latency/eyeriss", "--given-data", data
    )
    data.write_text(f"network,{NAME}\n{ARCHS[0]},1\n")
    assert "none of the columns arch" in refused(capsys, *command, "--given", NAME, "--given-data", data)
    data.write_text(f"arch,{NAME}\nsomething else,1\n")
    assert "none of the 6 networks" in refused(capsys, *command, "--given", NAME, "--given-data", data)
    data.write_text(f"arch,{NAME}\n{ARCHS[0]},1\n{ARCHS[1]},3\n{ARCHS[0]},2\n")
    several = refused(capsys, *command, "--given", NAME, "--given-data", data)
    assert f"has 1 and 2 as {NAME} of '{ARCHS[0]}': expected one number for each network" in several
