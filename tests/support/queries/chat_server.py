"""A chat completions server on loopback that makes mistakes on request."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a request: a status with headers and a body; `cut`: bytes after which the connection ends,
    of a body that is stated to be longer.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None


@dataclass
class Served:
    """What a server was asked, and what it does.

    faults: of the next requests, in turn. dies_after: answers after which it closes every connection without a word.
    key: what it demands. refuses: a text that no message may contain.
    """

    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    dies_after: int | None = None
    key: str = ""
    refuses: str = ""
    answer: Callable[[str], str] = lambda message: message
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def decide(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Fault | bytes | None:
        """The answer, a fault, or None for a connection that ends."""
        with self.lock:
            self.headers.append(headers)
            if path.endswith("/chat/completions"):
                self.requests.append(body)
            if self.faults:
                return self.faults.pop(0)
            if self.dies_after is not None and self.answered >= self.dies_after:
                return None
            if self.key and headers.get("Authorization") != f"Bearer {self.key}":
                return Fault(401, body=json.dumps({"error": {"message": f"bad key {headers}"}}).encode())
            message = body["messages"][0]["content"]
            if self.refuses and self.refuses in message:
                return Fault(400, body=b'{"error": {"message": "the prompt is too long"}}')
            self.answered += 1
            return completion(self.answer(message))


def completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    return json.dumps({"choices": [{"message": message}]}).encode()


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    """The server while the block runs; its URL is in `served`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._work(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._work({})

        def _work(self, body: dict[str, Any]) -> None:
            found = served.decide(self.path, body, {name.title(): value for name, value in self.headers.items()})
            if found is None:
                self.close_connection = True
                return
            fault = found if isinstance(found, Fault) else Fault(body=found)
            self.send_response(fault.status)
            for name, value in {"Content-Type": "application/json", **fault.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(fault.body)))
            self.end_headers()
            self.wfile.write(fault.body[: fault.cut])
            self.close_connection = fault.cut is not None

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
