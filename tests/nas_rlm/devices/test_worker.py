import io
import json

import pytest
import torch

from nas_rlm.devices.serving import serve
from nas_rlm.devices.worker import Worker, handlers
from tests.nas_rlm.devices.networks import onnx_files


def send_requests(*requests):
    request_stream, reply_stream = io.BytesIO(), io.BytesIO()
    for request, content in requests:
        size = {"bytes": len(content)} if content else {}
        request_stream.write(json.dumps(request | size).encode() + b"\n" + content)
    request_stream.seek(0)
    serve(handlers(), request_stream, reply_stream)
    return [json.loads(line) for line in reply_stream.getvalue().splitlines()]


def test_each_request_gets_a_reply_or_an_error(monkeypatch):
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    monkeypatch.setattr("gc.disable", lambda: None)
    ((_, content),) = onnx_files(1)
    opened, loaded, window, not_loaded, not_onnx, unknown_method = send_requests(
        ({"method": "open", "device": "torch-cpu-1t"}, b""),
        ({"method": "load", "number": 4}, content),
        ({"method": "window", "number": 4, "seconds": 0.0}, b""),
        ({"method": "window", "number": 5, "seconds": 0.0}, b""),
        ({"method": "load", "number": 6}, b"no model"),
        ({"method": "fly"}, b""),
    )
    assert opened["runtime"].startswith("torch 2")
    assert opened["processor"]
    assert loaded["memory"] >= 0
    assert len(window["times"]) == 3
    assert all(0 < t < 10 for t in window["times"])
    assert not_loaded == {"error": "5"}
    assert not_onnx["error"]
    assert unknown_method == {"error": "'fly'"}


def test_the_worker_refuses_more_threads_than_its_processors(monkeypatch):
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: pytest.fail("the affinity is set"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5})
    (opened,) = send_requests(({"method": "open", "device": "torch-cpu-64t"}, b""))
    assert opened["error"].startswith("torch-cpu-64t needs 64 processors, this process may use 2: expected")


def test_the_description_of_a_machine_names_the_gpu_that_runs_networks(monkeypatch):
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    assert Worker().open("torch-cuda")["gpu"] == "NVIDIA H100"
    assert "gpu" not in Worker().open("torch-cpu-1t")


@pytest.mark.parametrize("answers", [True, False])
def test_the_worker_ends_when_a_network_makes_the_gpu_unusable(monkeypatch, capsys, answers):
    def fail(*_):
        raise RuntimeError("CUDA error: device-side assert triggered")

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "synchronize", (lambda: None) if answers else fail)
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr("nas_rlm.devices.worker.load", fail)
    ((_, content),) = onnx_files(1)
    requests = ({"method": "open", "device": "torch-cuda"}, b""), ({"method": "load", "number": 0}, content)
    if answers:
        assert send_requests(*requests)[1] == {"error": "CUDA error: device-side assert triggered"}
    else:
        with pytest.raises(SystemExit, match="1"):
            send_requests(*requests)
        assert capsys.readouterr().err == "CUDA error: device-side assert triggered\n"
