"""MLflow's own server in this process, over a SQLite store, which can be told to fail in the ways that servers fail."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlflow.server.handlers
import pytest
from mlflow.server import app
from werkzeug.serving import WSGIRequestHandler, make_server

TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
BODY = b'{"error_code": "INTERNAL_ERROR", "message": "a fault"}'


class FaultyServer:
    """`fault`: none, a status that is answered in place of MLflow, `silent` (no answer until the fault ends), `lost`
    (MLflow does what it is asked, and the connection ends without an answer) or `stopped` (nobody listens).
    """

    def __init__(self) -> None:
        self.fault = ""
        self.ended = threading.Event()
        self.start(0)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def start(self, port: int) -> None:
        self.server = make_server("127.0.0.1", port, self._answer, threaded=True, request_handler=_Quiet)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def fail(self, fault: str) -> None:
        self.ended.clear()
        self.fault = fault
        if fault == "silent":
            os.environ[TIMEOUT] = "2"
        if fault == "stopped":
            self.stop()

    def mend(self) -> None:
        if self.fault == "stopped":
            self.start(self.server.server_port)
        self.fault = ""
        os.environ[TIMEOUT] = "60"
        self.ended.set()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        fault = self.fault
        if fault == "silent":
            self.ended.wait()
        elif fault == "lost":
            list(app.wsgi_app(environ, lambda *_: None))
        if fault in ("silent", "lost", "stopped"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError
        if fault:
            start_response(f"{fault} fault", [("Content-Type", "application/json")])
            return [BODY]
        return app.wsgi_app(environ, start_response)


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None: ...

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None: ...


@contextmanager
def faulty_server(uri: str, artifacts: str) -> Iterator[FaultyServer]:
    """A server over the SQLite store `uri`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlflow.server.handlers, "_tracking_store", None)
        patch.setattr(mlflow.tracking._tracking_service.utils, "_tracking_uri", None)  # a server sets it for good
        patch.setenv(TIMEOUT, "60")
        patch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
        mlflow.server.handlers._get_tracking_store(uri, artifacts)
        server = FaultyServer()
        yield server
        server.mend()
        server.stop()
