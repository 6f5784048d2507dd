"""Queries of a file: those of real people, without judgements.

Each gets its positive from BM25: the first passage of its ranking, if that passage's score is above the second's by a
margin. THIS IS A WEAK LABEL. It is often wrong, and BM25 is right by construction: so the queries are good for training
and for their wording, BM25's own values on them say nothing, and a system that finds a better passage is marked down.
They stay out of the sums that state how hard the made queries are.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from midmask.artifact import Place
from midmask.corpora.contents import form_by_name
from midmask.derived.given import is_utf8
from midmask.errors import UserError
from midmask.queries.made import MadeQuery, Passage
from midmask.randomness.texts import hash64
from midmask.retrieve.bm25_search import Bm25Index
from midmask.retrieve.lines import text_lines

KEYS = ("text", "query", "question")
LAYOUT = 'wanted are lines of text, id<TAB>text, or {"text": …} in a .jsonl file'


class FileQueries:
    """The queries of a file that BM25 answers clearly, each with the passage that it finds.

    Args:
        place: a .txt (a query a line), .tsv (the last column) or .jsonl file (`text`, `query` or `question`), plain or
            gzip'd.
        index: of the collection before anything is hidden.
        margin: how much more than the second passage the first must score, as a share of the second's score.
        limit: number of queries that are searched, the first by a hash of their text.

    facts: how many lines were read, malformed or repeated, and how many queries were searched, without a passage, or
    without the margin.

    Raises:
        UserError: if the file is not there or holds no query.
    """

    def __init__(self, place: Place, index: Bm25Index, margin: float, limit: int, seed: int) -> None:
        self.facts: Counter[str] = Counter()
        self._name = f"file:{place}"
        texts = self._read(place)
        if not texts:
            raise UserError(f"queries.sources, {self._name}: there is no query in it; {LAYOUT}")
        order = sorted(zip(hash64(texts, f"queries {seed} file").tolist(), texts, strict=True))
        self._of = self._answers([text for _, text in order[:limit]], index, margin)

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        for passage in passages:
            for text in self._of.get(passage.doc_id, ()):
                yield MadeQuery(passage.doc_id, text, self._name)

    def _read(self, place: Place) -> list[str]:
        """Different texts in order of appearance."""
        found: dict[str, None] = {}
        for _, line in text_lines(
            place, name=f"queries.sources, {self._name}", errors="replace", form=form_by_name(place.base)
        ):
            self.facts["lines"] += 1
            text = parse_query_line(line, json_lines=re.search(r"\.jsonl(\.gz)?$", place.base) is not None)
            if text is None:
                self.facts["malformed"] += 1
            elif text in found:
                self.facts["repeated"] += 1
            else:
                found[text] = None
        return list(found)

    def _answers(self, texts: list[str], index: Bm25Index, margin: float) -> dict[str, list[str]]:
        """Passage -> its queries."""
        answers: dict[str, list[str]] = {}
        self.facts["searched"] = len(texts)
        for text in texts:
            found = index.search(["q"], [text], 2)
            scores = found["score"].to_pylist()
            if not scores:
                self.facts["without_passage"] += 1
            elif len(scores) > 1 and scores[0] < (1 + margin) * scores[1]:
                self.facts["without_margin"] += 1
            else:
                answers.setdefault(found["doc_id"][0].as_py(), []).append(text)
        return answers


def parse_query_line(line: str, *, json_lines: bool) -> str | None:
    """The query of a line, in one line; None if there is none in it."""
    if json_lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return None
        value = next((row[key] for key in KEYS if isinstance(row, dict) and isinstance(row.get(key), str)), "")
    else:
        value = line.rsplit("\t", 1)[-1]
    text = " ".join(value.split())
    return text if text and is_utf8(text) else None
