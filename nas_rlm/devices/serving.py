"""How a worker process answers: a line of JSON for each request, see `nas_rlm.devices.connection`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

Answers = Mapping[str, Callable[..., dict[str, Any]]]  # by what is to be done


def serve(do: Answers, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until there are no more.

    Args:
        do: what can be asked for.
        requests: a line of JSON each; after the line of one that has `bytes`, so many follow.
        replies: a line of JSON each.
    """
    for line in requests:
        request = json.loads(line)
        size = request.pop("bytes", None)
        if size is not None:
            request["content"] = requests.read(size)
        try:
            reply = do[request.pop("do")](**request)
        except Exception as error:  # whatever is raised is told of this request, and the next one is answered
            said = str(error).strip().splitlines()[:1]
            reply = {"error": (said or [type(error).__name__])[0][:500]}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


def serve_standard(do: Answers) -> None:
    """Serve on what was standard output; what else is printed goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(do, sys.stdin.buffer, replies)
