"""Which passages a source reads, and that what a model wrote is asked for once."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.queries.candidates import draw_passages, make_or_read
from midmask.queries.made import MadeQuery, Passage
from midmask.queries.sentences import SentenceQueries
from midmask.queries.titles import TitleQueries
from tests.support.queries.articles import articles

PASSAGES = articles(8)


class Failing:
    """A source whose server is gone."""

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        raise ConnectionError("no server any more")


def test_what_was_written_before_a_kill_is_not_asked_for_again(tmp_path: Path) -> None:
    saved = Place(str(tmp_path / "00-000000.parquet"))
    with pytest.raises(ConnectionError):
        make_or_read(Failing(), PASSAGES, saved)
    assert not saved.exists()
    for source in (SentenceQueries(0, 2), TitleQueries({one.title: 1 for one in PASSAGES}, 1)):
        made = make_or_read(source, PASSAGES, saved)
        assert len(made) > 30 and made == list(source.queries(PASSAGES))
        assert make_or_read(Failing(), PASSAGES, saved) == made
        saved.delete()


def test_passages_are_drawn_by_their_ids_alone() -> None:
    ids = [one.doc_id for one in PASSAGES]
    few = draw_passages(ids, 0, "spans", 10)
    assert few is not None and len(few) == 10 and few == draw_passages(ids[::-1], 0, "spans", 10)
    more = draw_passages(ids, 0, "spans", 20)
    assert more is not None and few < more and more != draw_passages(ids, 1, "spans", 20)
    assert draw_passages(ids, 0, "spans", 40) is None is draw_passages(ids, 0, "titles", 10), "all of them"
