"""The worker's side of `nas_rlm.devices.connection`: replies to requests as JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

MAX_ERROR_CHARACTERS = 500
Handlers = Mapping[str, Callable[..., dict[str, Any]]]  # by the name of the request's method


def serve(handlers: Handlers, requests: BinaryIO, replies: BinaryIO) -> None:
    """Reply to requests until the input ends.

    Args:
        handlers: function that handles a request, by the name of its method.
        requests: stream with a JSON line for each request; if it has the key `bytes`, that number of bytes
            follows the line.
        replies: stream to which a JSON line is written for each request, with the key `error` if it failed.
    """
    for line in requests:
        request = json.loads(line)
        size = request.pop("bytes", None)
        if size is not None:
            request["content"] = requests.read(size)
        try:
            reply = handlers[request.pop("method")](**request)
        except Exception as error:  # any error is reported to the client, and the worker continues
            message = str(error).strip().splitlines()[:1]
            reply = {"error": (message or [type(error).__name__])[0][:MAX_ERROR_CHARACTERS]}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


def serve_on_stdio(handlers: Handlers) -> None:
    """Serve on standard input and output; anything else that is printed goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(handlers, sys.stdin.buffer, replies)
