"""Target: a tracking server every third of whose answers is something else."""

import json
import os
import random
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}

from midmask.tracking import Tracker
from midmask.tracking.failures import Patience
from midmask.tracking.reading import read_runs
from tests.fuzz.mutating import mutate_text
from tests.fuzz.running import Case, Outcome

IMPATIENT = Patience(answer=0.05, close=0.05, flush=0.01, retry=0.01, longest_retry=0.02)
ID = "a" * 32
INFO = {"run_id": ID, "run_uuid": ID, "run_name": "r", "experiment_id": "1", "user_id": "u", "status": "FINISHED",
        "start_time": 1, "end_time": 2, "artifact_uri": "x", "lifecycle_stage": "active"}  # fmt: skip
DATA = {
    "metrics": [{"key": "squad/dev/nDCG_at_10", "value": 0.5, "timestamp": 1, "step": 0}],
    "params": [{"key": "pretrain.steps", "value": "5"}],
    "tags": [{"key": "midmask.job", "value": "sweep"}],
}
RUN = {"info": INFO, "data": DATA}
EXPERIMENT = {"experiment_id": "1", "name": "midmask", "artifact_location": "x", "lifecycle_stage": "active"}
ANSWERS: dict[str, Any] = {
    "experiments/get-by-name": {"experiment": {**EXPERIMENT, "creation_time": 5, "last_update_time": 5}},
    "runs/search": {"runs": [RUN, RUN]},
    "runs/create": {"run": RUN},
    "runs/get": {"run": RUN},
    "experiments/create": {"experiment_id": "1"},
}
RUBBISH = [*(b"", b"null", b"[]", b"5", b"<html>no</html>", b"\xff\xfe", b"{" * 3000, b"[" * 100_000, b'{"runs": 5}')]
STATUSES = [*[200] * 6, 204, 301, 400, 401, 403, 404, 409, 418, 429, 500, 502, 503]


def targets(root: Path) -> dict[str, Case]:
    return {"tracking answers": partial(_case, root)}


def _case(root: Path, rng: random.Random, folder: Path) -> Outcome:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            good = next((body for path, body in ANSWERS.items() if path in self.path), {})
            body, status = json.dumps(good).encode(), 200
            if rng.random() < 0.35:
                body = rng.choice([*RUBBISH, mutate_text(rng, body), mutate_text(rng, body), body[: len(body) // 2]])
                status = rng.choice(STATUSES)
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if rng.random() < 0.9 else "text/html")
            self.send_header("Content-Length", str(len(body) + (9 if rng.random() < 0.02 else 0)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=partial(server.serve_forever, poll_interval=0.01), daemon=True).start()
        try:
            uri = f"http://127.0.0.1:{server.server_port}"
            if rng.random() < 0.5:
                read_runs(uri)
                return "succeeded"
            with Tracker(uri, folder, IMPATIENT) as tracker:
                tracker.find("f" * 16, step="job")
                with tracker.run("a run", tags={"midmask.job": "sweep"}, params={"a": 1}) as run:
                    run.log({"loss": 1.0}, 0)
            return "succeeded"
        finally:
            server.shutdown()
