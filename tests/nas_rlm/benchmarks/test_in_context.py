import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nas_rlm.benchmarks import in_context
from nas_rlm.benchmarks.in_context import (
    Answer,
    AnswerSummary,
    Server,
    make_prompt,
    parse_number,
    summarize_answers,
)
from nas_rlm.cli import main
from nas_rlm.data import Row, write

ROWS = [Row("CDSS", "", {"memory": 1000.0 + 10 * i}, f"program {i}", f"r{i}") for i in range(300)]


class Stub(BaseHTTPRequestHandler):
    """Answers with the number of the queried program, or as `behave` does."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers.get("Authorization"), request))
        status, reply = self.server.behave(request)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    def log_message(self, *_):
        pass


def completion(text):
    return {"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 7}}


def answer(request):
    last = request["messages"][-1]["content"].rsplit("program ", 1)[1].split("\n")[0]
    return 200, completion(f"It allocates a list, so {1000 + 10 * int(last)}")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(in_context, "FIRST_PAUSE", 0.01)
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as found:
        found.requests, found.behave = [], answer
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def address(server):
    return f"http://127.0.0.1:{server.server_port}/v1"


def test_rows_are_queried_and_an_interrupted_run_continues(server, tmp_path, capsys, monkeypatch):
    write(tmp_path / "t.parquet", ROWS)
    monkeypatch.setenv("MY_KEY", "secret")
    command = ["bench", "in-context", "--data", str(tmp_path / "t.parquet"), "--objective", "memory"]
    command += ["--server", address(server), "--llm", "some-model", "--shots", "0,3", "--rows", "8"]
    command += ["--key", "MY_KEY", "--out", str(tmp_path / "out.jsonl")]
    assert main(command) == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [line.split() for line in shown] == [
        ["0", "8", "0", "1.000", "1.000", "7"],
        ["3", "8", "0", "1.000", "1.000", "7"],
    ]
    assert len(server.requests) == 16
    path, key, request = server.requests[-1]
    assert (path, key, request["model"]) == ("/v1/chat/completions", "Bearer secret", "some-model")
    assert [
        sum(f"{a['messages'][1]['content']}".count("memory: ") for _, _, a in server.requests[k : k + 8])
        for k in (0, 8)
    ] == [0, 24]
    assert "secret" not in (tmp_path / "out.jsonl").read_text()
    lines = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_text("".join(lines[:-2]) + lines[-2][:20])
    server.requests.clear()
    assert main(command) == 0
    assert len(server.requests) == 2
    assert (tmp_path / "out.jsonl").read_text() == "".join(lines)


def test_a_busy_server_is_queried_again(server):
    replies = iter([(429, b"busy"), (503, b"busy"), (200, completion("5"))])
    server.behave = lambda request: next(replies)
    assert Server(address(server), "m").complete([]) == ("5", 7)


@pytest.mark.parametrize(
    ("status", "reply", "message", "times"),
    [
        (401, b"no", "401 Unauthorized", 1),
        (503, b"busy", "503 Service Unavailable", in_context.MAX_ATTEMPTS),
        (200, b"hello", "is not a chat completion", 1),
        (200, {"choices": []}, "is not a chat completion", 1),
        (200, completion(None), "is not a chat completion", 1),
    ],
)
def test_servers_that_fail_are_reported(server, status, reply, message, times):
    server.behave = lambda request: (status, reply)
    with pytest.raises(ValueError, match=message):
        Server(address(server), "m").complete([])
    assert len(server.requests) == times


def test_a_missing_server_is_reported(monkeypatch):
    monkeypatch.setattr(in_context, "FIRST_PAUSE", 0.01)
    with pytest.raises(ValueError, match="does not answer 'm'"):
        Server("http://127.0.0.1:9/v1", "m", timeout=0.2).complete([])
    with pytest.raises(ValueError, match="'file:///etc/passwd' is not the address of a server"):
        Server("file:///etc/passwd", "m")


def test_examples_precede_the_queried_text():
    system, user = make_prompt([("first", 12.5), ("second", 3e9)], "third", "memory")
    assert "memory in bytes" in system["content"]
    assert (
        user["content"]
        == "Text:\nfirst\nmemory: 12.5\n\nText:\nsecond\nmemory: 3e+09\n\nText:\nthird\nmemory:"
    )


@pytest.mark.parametrize(
    ("reply", "value"),
    [("12", 12), ("about 1,234.5 bytes", 1234.5), ("3e6", 3e6), ("of 10, so -.5", -0.5), ("7.", 7)],
)
def test_numbers_are_parsed(reply, value):
    assert parse_number(reply) == value
    assert math.isnan(parse_number("no idea"))


def test_replies_without_a_number_count_as_the_median():
    answers = {(2, 0, str(i)): Answer(float(i), math.nan if i == 1 else float(i), 4) for i in range(4)}
    ((count, summary),) = summarize_answers(answers).items()
    assert (count, summary.rows, summary.without_number, summary.tokens) == (2, 4, 1, 4.0)
    assert 0.7 < summary.spearman < 1 and 0.6 < summary.kendall < 1
    nothing = {(0, 0, "a"): Answer(1.0, math.nan, 0), (0, 0, "b"): Answer(2.0, math.nan, 0)}
    assert summarize_answers(nothing)[0] == AnswerSummary(2, 2, 0.0, 0.0, 0.0)
