"""A worker whose networks are their own names, such as `refuse`, `die once` or `hang`, or seconds.

python fake_worker.py LOG [slow=SECONDS] -m nas_rlm.devices.worker
"""

import json
import os
import sys
import time
from pathlib import Path

log, *options = sys.argv[1:]
slow = float(next((r.split("=")[1] for r in options if r.startswith("slow=")), 0))
networks = {}


def reply(**values):
    sys.stdout.buffer.write(json.dumps(values).encode() + b"\n")
    sys.stdout.buffer.flush()


for line in sys.stdin.buffer:
    request = json.loads(line)
    content = sys.stdin.buffer.read(request.get("bytes", 0)).decode()
    name = content or networks.get(request.get("number"), "")
    with open(log, "a") as file:
        print(request["method"], name, file=file)
    if request["method"] == "open":
        reply(processor="fake", device=request["device"])
    elif request["method"] == "load":
        networks[request["number"]] = name
        if name == "refuse":
            reply(error="no kernel for Foo")
        elif name == "die":
            print("core dumped", file=sys.stderr, flush=True)
            os._exit(7)
        elif name == "die once" and Path(log).read_text().count("load die once") == 1:
            os._exit(255)  # as ssh does when a connection is lost
        elif name == "hang":
            time.sleep(60)
        elif name == "babble":
            print("hello", flush=True)
        else:
            time.sleep(slow)
            reply(memory=1000)
    elif name == "die late":
        os.kill(os.getpid(), 9)
    elif name == "refuse late":
        reply(error="out of memory")
    else:
        reply(times=[0.004 if name == "die once" else float(name)] * 3)
