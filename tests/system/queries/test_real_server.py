"""Queries from `transformers serve`, a real server of the same protocol, with a tiny random model."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.queries.chat import ServerQueries
from midmask.queries.collection import Passage
from midmask.queries.config import QueriesConfig
from midmask.queries.query_model import GenerateConfig
from midmask.store.place import Place
from tests.support.queries.articles import opening
from tests.support.queries.documents import text_of
from tests.support.queries.small_models import write_causal

PASSAGES = [Passage(f"d{n}", "", text_of(n).lower()) for n in range(5)]
START = "from transformers.cli.transformers import main; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_causal(folder)
    return folder


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's, which chooses a free port itself; it is ended by its process id."""
    home = tmp_path_factory.mktemp("home")
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", START, "serve", str(model), "--host", "127.0.0.1", "--port", "0"]
    pipes = {"stderr": subprocess.STDOUT, "stdout": subprocess.PIPE}
    server = subprocess.Popen(command, env={**os.environ, **offline}, **pipes, text=True)
    try:
        assert server.stdout is not None
        told: list[str] = []
        for line in server.stdout:
            told.append(line)
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                yield f"{found[1]}/v1"
                break
        else:
            pytest.fail(f"the server did not start: {''.join(told)[-2000:]}")
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


def config_of(model: Path, **fields: object) -> QueriesConfig:
    own = {"server_prompt": "{passage}", "server_model": str(model), "server_concurrency": 2, **fields}
    return QueriesConfig(per_passage=2, generate=GenerateConfig(max_tokens=12), **own)


def test_a_real_server_writes_queries_that_are_kept(model: Path, url: str, tmp_path: Path) -> None:
    cache = Place(str(tmp_path / "cache"))
    made = list(ServerQueries(url, opening(config_of(model), cache=cache)).queries(PASSAGES))
    assert made and {query.doc_id for query in made} <= {passage.doc_id for passage in PASSAGES}
    assert all(query.text and "\n" not in query.text for query in made)
    gone = ServerQueries("http://127.0.0.1:9/v1", opening(config_of(model, server_retries=0), cache=cache))
    assert list(gone.queries(PASSAGES)) == made, "without a server, from what is kept"


def test_a_real_server_refuses_other_models(model: Path, url: str) -> None:
    other = ServerQueries(url, opening(config_of(model, server_model="no/such-model", server_retries=0)))
    with pytest.raises(UserError, match=r"no/such-model|HTTP"):
        list(other.queries(PASSAGES))
