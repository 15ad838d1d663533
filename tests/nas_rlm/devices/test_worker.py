import io
import json

from nas_rlm.devices.serving import serve
from nas_rlm.devices.worker import answers
from tests.nas_rlm.devices.networks import contents


def replies_to(*requests):
    asked, told = io.BytesIO(), io.BytesIO()
    for request, content in requests:
        size = {"bytes": len(content)} if content else {}
        asked.write(json.dumps(request | size).encode() + b"\n" + content)
    asked.seek(0)
    serve(answers(), asked, told)
    return [json.loads(line) for line in told.getvalue().splitlines()]


def test_requests_are_answered_and_errors_are_told(monkeypatch):
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    monkeypatch.setattr("gc.disable", lambda: None)
    ((_, content),) = contents(1)
    opened, loaded, window, unknown, broken, strange = replies_to(
        ({"do": "open", "device": "torch-cpu-1t"}, b""),
        ({"do": "load", "number": 4}, content),
        ({"do": "window", "number": 4, "seconds": 0.0}, b""),
        ({"do": "window", "number": 5, "seconds": 0.0}, b""),
        ({"do": "load", "number": 6}, b"no model"),
        ({"do": "fly"}, b""),
    )
    assert opened["runtime"].startswith("torch 2")
    assert opened["processor"]
    assert loaded["memory"] >= 0
    assert len(window["times"]) == 3
    assert all(0 < t < 10 for t in window["times"])
    assert unknown == {"error": "5"}
    assert broken["error"]
    assert strange == {"error": "'fly'"}
