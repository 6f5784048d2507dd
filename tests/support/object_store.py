"""An S3 of this process's own on a loopback port: moto's server, reached through pyarrow like any other."""

import contextlib
import logging
import os
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from unittest import mock

from moto.server import ThreadedMotoServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass
class Requests:
    """What a server was asked for. writing: requests that are billed as writes (PUT, POST, COPY and lists of names).
    reading: all others but deletions, which are free. up, down: bytes of their bodies.
    """

    writing: int = 0
    reading: int = 0
    up: int = 0
    down: int = 0
    _lock: Any = field(default_factory=Lock, repr=False, compare=False)

    def around(self, app: Any) -> Any:
        """The same WSGI application, counted."""

        def counted(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
            body = b"".join(app(environ, start))
            with self._lock:
                if method in ("PUT", "POST") or "list-type" in query:
                    self.writing += 1
                elif method != "DELETE":
                    self.reading += 1
                self.up += int(environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH") or 0)
                self.down += len(body) if method != "HEAD" else 0
            return [body]

        return counted


@contextlib.contextmanager
def object_store(bucket: str = "bucket", requests: Requests | None = None) -> Iterator[str]:
    """The options of a URI that reach the server: `s3://BUCKET/ANY/KEY?OPTIONS`. Child processes reach it too, with the
    environment that holds as long as the block. `requests` counts what the server is asked for.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it writes a line for every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    if requests is not None:
        server._server.app = requests.around(server._server.app)  # type: ignore[union-attr]
    host, port = server.get_host_and_port()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{bucket}", method="PUT")).close()
    try:
        with mock.patch.dict(os.environ, CREDENTIALS):
            yield f"scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    finally:
        server.stop()
