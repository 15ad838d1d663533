import os
import sys

import numpy as np
import onnx
import pytest
import torch

from nas_rlm.cli import main
from nas_rlm.data import read
from tests.nas_rlm.cli.commands import refused
from tests.nas_rlm.devices.networks import SPACE, encoder, fake_worker_command, model_of


def test_profile_measures_and_continues(tmp_path, capsys, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    out = tmp_path / "runs" / "t.parquet"
    command = ["profile", "--device", "onnxruntime", "--space", "nasbench201", "--seconds", "0.01"]
    command += ["--windows", "2", "--out", str(out)]
    assert main([*command, "--sample", "2"]) == main([*command, "--sample", "3", "--memory"]) == 0
    printed = capsys.readouterr().out
    assert "3 networks with latency/onnxruntime-cpu-1t" in printed
    assert "windows of a network differ by" in printed
    rng = np.random.default_rng(0)
    rows = read(out).rows
    assert [r.arch_str for r in rows] == [str(SPACE.sample(rng)) for _ in range(3)]
    assert all(r.is_measured("latency/onnxruntime-cpu-1t") for r in rows)
    assert [("memory/onnxruntime-cpu-1t" in r.targets) for r in rows] == [False, False, True]


def test_profile_selects_informative_networks(tmp_path, tiny_checkpoint):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    out = tmp_path / "t.parquet"
    command = ["profile", "--device", "onnxruntime", "--space", "nasbench201", "--seconds", "0.001"]
    command += ["--windows", "1", "--model", str(tiny_checkpoint), "--sample", "30", "--choose", "4"]
    assert main([*command, "--out", str(out)]) == 0
    assert len(read(out)) == 4


def test_failures_are_reported_and_kept(tmp_path, capsys):
    out, archs = tmp_path / "t.parquet", tmp_path / "archs.txt"
    archs.write_text(f"{SPACE.sample(np.random.default_rng(0))}\n")
    command = ["profile", "--device", "onnxruntime", "--space", "nasbench201", "--archs", str(archs)]
    assert main([*command, "--out", str(out), "--python", fake_worker_command(tmp_path / "log")]) == 0
    assert "1 cannot run there, the first one: the process ended with code 1" in capsys.readouterr().out
    (row,) = read(out).rows
    assert not row.is_measured("latency/onnxruntime-cpu-1t")


IMAGES = "g (float[N, 3, height, 8] images) => (float[N, 3, height, 8] y) { y = Relu(images) }"


def test_files_with_given_shapes_are_measured(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    out, images, text = tmp_path / "t.parquet", tmp_path / "images.onnx", tmp_path / "text.onnx"
    onnx.save(model_of(IMAGES), images)
    onnx.save(encoder(), text)
    command = [
        "profile",
        "--device",
        "onnxruntime",
        "--windows",
        "1",
        "--seconds",
        "0.001",
        "--out",
        str(out),
    ]
    assert main([*command, str(images), "--input-shape", "images:1x3x16x8"]) == 0
    shapes = ["--input-shape", "input_ids:1x9", "--input-shape=images:1x3x16x8"]
    assert main([*command, str(text), str(images), *shapes]) == main([*command, *shapes[:2], str(text)]) == 0
    assert "2 networks with latency/onnxruntime-cpu-1t" in capsys.readouterr().out
    rows = read(out).rows
    assert [row.identifier for row in rows] == [str(images), str(text)]
    assert all("latency/onnxruntime-cpu-1t" in row.targets for row in rows)
    assert "int32[1,9]" in rows[1].input


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ((), "input 'images' has an open dimension 2 ('height'): give --input-shape images:1x3x224x8"),
        (("images",), "'images' is not the shape of an input: expected NAME:SIZES, with x between"),
        (("images:axb",), "'images:axb' is not the shape of an input"),
        (("images:0x3",), "'images:0x3' is not the shape of an input"),
        (("image:1x3x16x8",), "no model has an input 'image'; did you mean images?"),
        (("images:1x3x16",), "has 3 sizes, and in the file 4: expected a shape such as images:1x3x224x8"),
        (("images:1x3x16x9",), "which is 8 in the file: expected a shape such as images:1x3x16x8"),
        (("images:1x3x16x8", "images:1x3x16x8"), "input 'images' has two shapes: give one"),
    ],
)
def test_bad_shapes_are_refused(tmp_path, capsys, shapes, message):
    onnx.save(model_of(IMAGES), tmp_path / "m.onnx")
    options = [text for shape in shapes for text in ("--input-shape", shape)]
    command = ("profile", tmp_path / "m.onnx", "--device", "torch", "--out", tmp_path / "t.parquet")
    assert message in refused(capsys, *command, *options)
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors are not known")
@pytest.mark.parametrize("python", ["", sys.executable])
def test_more_threads_than_processors_are_refused(tmp_path, capsys, python):
    out = tmp_path / "t.parquet"
    command = ("profile", "--space", "nasbench201", "--sample", "1", "--out", out, "--python", python)
    line = refused(capsys, *command, "--device", "torch-cpu-1000t")
    assert "torch-cpu-1000t needs 1000 processors, this process may use" in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "give ONNX files, or --space"),
        (("--space", "nasbench201"), "nothing to measure: give --sample N"),
        (("--space", "nasbench201", "--sample", "-1"), "--sample is -1"),
        (("--space", "nasbench201", "--sample", "2", "--windows", "0"), "--windows is 0"),
        (("--space", "nasbench201", "--sample", "2", "--seconds", "0"), "--seconds is 0"),
        (("--space", "nasbench201", "--sample", "2", "--limit", "0.1"), "--limit is 0.1"),
        (
            ("--space", "nasbench201", "--sample", "2", "--choose", "5"),
            "5 of 2 networks with different features",
        ),
        (("m.onnx", "--sample", "2"), "--choose are for spaces"),
        (("nowhere.onnx",), "nowhere.onnx"),
        (
            ("--space", "nasbench201", "--sample", "2", "--input-shape", "x:1x3x8x8"),
            "--input-shape is for ONNX files",
        ),
        (("--space", "nasbench201", "--sample", "1", "--python", "false"), "does not start a worker"),
    ],
)
def test_bad_options_are_refused(tmp_path, capsys, more, message):
    line = refused(capsys, "profile", "--device", "torch", *more, "--out", tmp_path / "t.parquet")
    assert message in line
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_here_leaves_no_rows(tmp_path, capsys):
    command = ("profile", "--space", "nasbench201", "--sample", "2", "--out", tmp_path / "t.parquet")
    line = refused(capsys, *command, "--device", "torch-cuda")
    assert "torch finds no CUDA device here" in line
    assert not (tmp_path / "t.parquet").exists()


def test_an_unknown_device(tmp_path, capsys):
    command = ("profile", "--space", "nasbench201", "--sample", "1", "--out", tmp_path / "t.parquet")
    assert "no runtime 'tensorrt'" in refused(capsys, *command, "--device", "tensorrt")
