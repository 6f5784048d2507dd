from pathlib import Path

from midmask.artifact import Place
from midmask.corpora.export import export_beir
from tests.support.corpora import layouts
from tests.support.corpora.collections import contents, rows


def test_what_is_written_is_read_again_as_it_was(tmp_path: Path) -> None:
    """TripClick has titles, grades and slices; and a second export of what was read has the same bytes."""
    layouts.write_tripclick(tmp_path / "in")
    corpus = layouts.read(f"tripclick:{tmp_path}/in", tmp_path / "one")
    export_beir(corpus.place, Place(str(tmp_path / "beir")))
    assert (tmp_path / "beir/qrels/test.head-dctr.tsv").read_text().splitlines()[:2] == [
        "query-id\tcorpus-id\tscore",
        "300\t1\t3",
    ]
    again = layouts.read(f"beir:{tmp_path}/beir", tmp_path / "two")
    for name in ("docs", "queries.parquet"):
        assert read(tmp_path / "one", name) == read(tmp_path / "two", name)
    judged = [sorted(map(str, rows(tmp_path / place / "qrels.parquet"))) for place in ("one", "two")]
    assert judged[0] == judged[1] and len(judged[0]) == 54 + 36
    export_beir(again.place, Place(str(tmp_path / "beir2")))
    assert contents(tmp_path / "beir") == contents(tmp_path / "beir2")


def read(place: Path, name: str) -> dict[str, bytes]:
    return {file: data for file, data in contents(place).items() if file.startswith(name)}
