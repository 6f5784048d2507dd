"""Lexical views as other search engines read them: a JSON line a text, weights by the token's text.

    pyserini    {"id", "contents", "vector": {term: weight}}    Anserini adds up integers: weights are rounded multiples
    seismic     {"id", "content", "vector": {term: weight}}     floats; over 65,535 terms it needs SeismicIndexLV

Plain or gzip'd. Weights must be positive: both engines take a term that is missing for a weight of 0.
"""

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.retrieve.lines import parsed_lines, written_lines
from midmask.retrieve.sparse import SparseRows

log = logging.getLogger(__name__)

SEISMIC_TERMS = 65_535
"""Seismic's plain index numbers terms by 16 bits."""


class TermVector(NamedTuple):
    """A text's weights by term, all above 0."""

    id: str
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Layout:
    """How weights stand in a file.

    quantisation: a weight w stands as round(w * quantisation), an integer, as Pyserini's impact indexes need it (100
    is usual); none: as it is.
    """

    engine: Literal["pyserini", "seismic"]
    quantisation: float | None = None

    def __post_init__(self) -> None:
        if self.quantisation is not None and not 0 < self.quantisation < math.inf:
            raise UserError(f"quantisation = {self.quantisation}: give a factor above 0, such as 100, or none")

    @property
    def text_field(self) -> str:
        return "contents" if self.engine == "pyserini" else "content"


PYSERINI = Layout("pyserini", 100.0)
SEISMIC = Layout("seismic")


@dataclass(frozen=True)
class Written:
    """What a file holds: texts, different terms, and entries that were rounded to 0 and left out."""

    rows: int
    terms: int
    rounded_away: int


def write_term_vectors(place: Place, vectors: Iterable[TermVector], layout: Layout) -> Written:
    """Writes a file, a line a text, in the given order.

    Raises:
        UserError: naming text and term of a weight that is not above 0 and finite.
    """
    rows, rounded_away, terms = 0, 0, set[str]()
    with written_lines(place) as stream:
        for vector in vectors:
            weights = {
                term: _written(place, vector.id, term, weight, layout) for term, weight in vector.weights.items()
            }
            kept = {term: weight for term, weight in weights.items() if weight}
            line = {"id": vector.id, layout.text_field: "", "vector": kept}
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            rows, rounded_away = rows + 1, rounded_away + len(weights) - len(kept)
            terms.update(kept)
    if layout.engine == "seismic" and len(terms) > SEISMIC_TERMS:
        log.warning("%s: %d terms, more than %d; index it with SeismicIndexLV", place, len(terms), SEISMIC_TERMS)
    if rounded_away:
        log.info("%s: %d weights are rounded to 0 by quantisation = %s", place, rounded_away, layout.quantisation)
    return Written(rows, len(terms), rounded_away)


def read_term_vectors(place: Place, layout: Layout) -> Iterator[TermVector]:
    """The lines of a file; weights are divided by the layout's quantisation.

    Raises:
        UserError: naming file and line, for a line of another layout, a weight that is not above 0, a text twice.
    """
    wanted = f'{{"id": …, "{layout.text_field}": …, "vector": {{term: weight}}}}'
    seen: set[str] = set()
    for number, vector in parsed_lines(place, lambda row: _read(row, layout), wanted):
        if vector.id in seen:
            raise UserError(f"{place}, line {number}: the text {vector.id!r} stands twice")
        seen.add(vector.id)
        yield vector


def named_rows(ids: Sequence[str], rows: SparseRows, terms: Sequence[str]) -> Iterator[TermVector]:
    """Rows over a vocabulary by the texts of its tokens.

    Args:
        terms: the text of each token, `tokenizer.convert_ids_to_tokens(range(rows.width))`.

    Raises:
        ValueError: if there are not as many ids as rows, or texts as columns; or a text stands for two tokens.
    """
    if len(ids) != len(rows) or len(terms) != rows.width or len(set(terms)) < len(terms):
        raise ValueError(f"{len(ids)} ids for {len(rows)} rows, {len(set(terms))} terms for {rows.width} columns")
    for number, name in enumerate(ids):
        columns, weights = rows.row(number)
        yield TermVector(name, dict(zip((terms[column] for column in columns), weights.tolist(), strict=True)))


def rows_over(vectors: Iterable[TermVector], terms: Sequence[str]) -> tuple[list[str], SparseRows]:
    """Ids and rows over a vocabulary: the inverse of `named_rows`.

    Raises:
        UserError: naming text and term, for a term that is not in the vocabulary.
    """
    column_of = {term: column for column, term in enumerate(terms)}
    ids, offsets, columns, weights = list[str](), [0], list[int](), list[float]()
    for vector in vectors:
        if strange := next((term for term in vector.weights if term not in column_of), None):
            raise UserError(
                f"text {vector.id!r} has the term {strange!r}, which the tokenizer does not know; name the tokenizer "
                "that the vectors were made with"
            )
        row = sorted((column_of[term], weight) for term, weight in vector.weights.items())
        ids.append(vector.id)
        columns += [column for column, _ in row]
        weights += [weight for _, weight in row]
        offsets.append(len(columns))
    entries = np.array(columns, dtype=np.int32), np.array(weights, dtype=np.float32)
    return ids, SparseRows(np.array(offsets, dtype=np.int64), *entries, len(terms))


def _written(place: Place, name: str, term: str, weight: float, layout: Layout) -> float:
    if not 0 < weight < math.inf:
        raise UserError(
            f"{place}: text {name!r} gives {term!r} the weight {weight}; {layout.engine} takes those above 0"
        )
    return weight if layout.quantisation is None else round(weight * layout.quantisation)


def _read(row: Any, layout: Layout) -> TermVector:
    name, vector = row["id"], row["vector"]
    if isinstance(name, bool) or not isinstance(name, str | int) or not isinstance(vector, dict):
        raise TypeError("the id is no text or number, or the vector no object")
    weights = {term: float(weight) / (layout.quantisation or 1.0) for term, weight in vector.items()}
    for term, weight in weights.items():
        if not 0 < weight < math.inf:
            raise ValueError(f"the weight {vector[term]} of {term!r}")
    return TermVector(str(name), weights)
