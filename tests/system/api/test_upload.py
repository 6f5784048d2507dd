"""A trained toy in a real server, from Python and from the shell."""

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest

import midmask
from midmask.api.texts import text_rows
from midmask.artifact import Place
from midmask.commands import upload
from tests.support.api import toy
from tests.support.postgres import PASSWORD, postgres


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with postgres() as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        yield found


def test_a_run_is_uploaded(run: midmask.Run, address: str) -> None:
    documents = toy.DOCUMENTS
    assert run.upload(address, "tuned", check=30) == midmask.Upload(documents, documents, 30, 30)
    assert run.upload(address, "tuned", check=0, progress=False) == midmask.Upload(documents, 0, 0, 0)


def test_a_model_folder_is_uploaded_from_the_shell(
    run: midmask.Run, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import psycopg

    rows = text_rows(toy.texts(), None, None, toy.queries(), range(toy.DOCUMENTS), None)
    rows.write(Place(str(tmp_path / "texts")))
    parser = ArgumentParser()
    upload.add_flags(parser)
    words = [str(run.model), "--corpus", f"beir:{tmp_path / 'texts'}", "--storage", str(tmp_path / "store")]
    words += ["--table", "shell", "--check", "50", "--to"]
    with pytest.raises(midmask.UserError, match="Connection refused"):
        upload.work(parser.parse_args([*words, "postgresql://postgres@127.0.0.1:1/postgres"]))
    assert not (tmp_path / "store").exists(), "vectors were computed before the server was asked"
    flags = parser.parse_args([*words, address])
    upload.work(flags)
    printed = capsys.readouterr()
    assert "shell: 80 passages, 80 of them written by this upload" in printed.out
    assert "equal lists of 10: 50 of 50 queries" in printed.out
    assert PASSWORD not in printed.out + printed.err
    with psycopg.connect(address, autocommit=True) as link:
        link.execute("UPDATE shell SET dense = (SELECT dense FROM shell ORDER BY doc_id LIMIT 1)")
    with pytest.raises(midmask.UserError, match=r"queries find other passages there .*DROP TABLE shell"):
        upload.work(flags)
