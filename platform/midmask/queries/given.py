"""Texts and tokens that are given from outside, by passage, and sorted into the corpus's shards.

Texts: queries or spans from a file.

    given.parquet      shard, row within it, text; in blocks, each sorted by shard, so that a shard's rows are found
    given.json         how many lines were read, how many were kept; a line with a fault may still be kept for the rest
    quarantine.jsonl   every line that was not kept, with the reason

Tokens: the step "read_tokens" makes a tokens artifact, without queries, of passages that were tokenised elsewhere. Rows
may have special tokens at their ends or not; this is recognised by the tokens, and all rows must agree. Both are
written as `tokenise` writes them: [CLS] row [SEP]. Shapes: B rows of a block, F of them that are not empty, K that are
kept, T tokens end to end.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from midmask.core.arrays import Ints
from midmask.core.config import Config, runtime
from midmask.corpora.ids import IdTable
from midmask.corpora.opening import form_by_name, text_lines
from midmask.corpora.writer import write_shards
from midmask.errors import UserError
from midmask.exchange.passage_files import TokenBlock, read_token_files, token_files
from midmask.store.artifact import Artifact, start_afresh
from midmask.store.place import Place
from midmask.store.tables import read_table, writing_table
from midmask.text.tokens import PASSAGES, TOKENISED_QUERIES, finish_tokens
from midmask.text.vocabulary import Vocabulary

log = logging.getLogger(__name__)


BLOCK = 1 << 18
"""Lines that are sorted by shard at a time."""

SCHEMA = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("text", pa.string())])


class GivenLine(NamedTuple):
    """One line of a file: a passage and its texts, or the fault of the line and its text."""

    number: int
    doc_id: str
    texts: list[str]
    fault: str | None = None


def read_file(place: Place, named: str, parse: Callable[[str], tuple[str, list[str]]]) -> Iterator[GivenLine]:
    """The lines of a file of queries, plain or gzip'd; a line without a query has a fault.

    Args:
        named: what messages call the file.
        parse: a line's passage ("" if none is named) and queries; raises ValueError or LookupError if it has none.

    Raises:
        UserError: as `corpora.opening.text_lines`.
    """
    for number, text in text_lines(place, name=named, errors="replace", form=form_by_name(place.base)):
        try:
            doc_id, queries = parse(text)
        except (ValueError, LookupError, RecursionError):
            yield GivenLine(number, "", [text], "malformed line")
            continue
        filled = [query.strip() for query in queries if query.strip()]
        if not all(map(is_utf8, [doc_id, *queries])):
            yield GivenLine(number, "", [text], "invalid UTF-8")
        else:
            yield GivenLine(number, doc_id, filled or [text], None if filled else "no query")


def passage_and_queries(line: str) -> tuple[str, list[str]]:
    """Parses {"doc_id", "queries"}, {"doc_id", "query"} or doc_id<TAB>query; which of both is read off each line."""
    if line.lstrip().startswith("{"):
        row = json.loads(line)
        doc_id = row["doc_id"] if "doc_id" in row else row["_id"]
        queries = row["queries"] if "queries" in row else [row["query"]]
    else:
        doc_id, query = line.split("\t", 1)
        queries = [query]
    if not isinstance(doc_id, str | int) or not isinstance(queries, list):
        raise ValueError("an id is a text or a number, and queries are a list")
    if not all(isinstance(query, str) for query in queries):
        raise ValueError("a query is a text")
    return str(doc_id), queries


def is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogates, which JSON can write as escapes."""
    return text.isascii() or not re.search("[\ud800-\udfff]", text)


def sort_by_shard(lines: Iterator[GivenLine], corpus: Place, out: Place) -> None:
    """Writes the files that the module names; given.json last, and nothing at all if it is there already."""
    if (out / "given.json").exists():
        return
    ids, starts = IdTable(), [0]
    for name in (corpus / "docs").names():
        ids.add(read_table(corpus / "docs" / name, ["doc_id"])["doc_id"].to_pylist())
        starts.append(len(ids))
    counts: Counter[str] = Counter()
    lines_read, last = 0, 0
    with (out / "quarantine.jsonl").writing() as quarantine, writing_table(out / "given.parquet", SCHEMA) as writer:
        while block := list(islice(lines, BLOCK)):
            numbers = np.array([last, *(line.number for line in block)])
            lines_read, last = lines_read + int((np.diff(numbers) != 0).sum()), numbers[-1]
            kept = _keep_known(block, ids, quarantine, counts)
            writer.write_table(_by_shard(kept, np.array(starts)), row_group_size=1 << 14)
    (out / "given.json").write_json({"lines": lines_read, **counts})


def _keep_known(block: list[GivenLine], ids: IdTable, quarantine: Any, counts: Counter[str]) -> list[tuple[int, str]]:
    """(row of the passage, text) of the good lines; the others are quarantined."""
    kept: list[tuple[int, str]] = []
    for line, row in zip(block, ids.rows([line.doc_id for line in block]).tolist(), strict=True):
        fault = line.fault or ("unknown id" if row < 0 else None)
        counts[fault or "kept"] += 1
        if fault:
            entry = {"kind": fault, "line": line.number, "doc_id": line.doc_id, "text": line.texts[0][:1000]}
            quarantine.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        else:
            kept += [(row, text) for text in line.texts]
    return kept


def _by_shard(kept: list[tuple[int, str]], starts: Any) -> pa.Table:
    rows = np.array([row for row, _ in kept], np.int64)
    shards = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(rows, kind="stable")
    texts = pa.array([text for _, text in kept], pa.string()).take(pa.array(order))
    columns = [shards[order].astype(np.int32), (rows - starts[shards])[order], texts]
    return pa.table(columns, schema=SCHEMA)


def read_given(out: Place, shard: int, first: int, count: int) -> list[list[str]]:
    """The texts of a shard's passages first … first + count - 1, each in the order in which they were given."""
    filters = [("shard", "=", shard), ("row", ">=", first), ("row", "<", first + count)]
    table = read_table(out / "given.parquet", filters=filters)
    texts: list[list[str]] = [[] for _ in range(count)]
    for row, text in zip(table["row"].to_pylist(), table["text"].to_pylist(), strict=True):
        texts[row - first].append(text)
    return texts


def count_given(out: Place) -> tuple[int, int]:
    """How many passages were given anything, and how many texts."""
    table = read_table(out / "given.parquet", ["shard", "row"])
    return table.group_by(["shard", "row"]).aggregate([]).num_rows, len(table)


EMPTY = "empty row"


class ReadTokensConfig(Config):
    """Token rows from a folder. What its files hold is the artifact's identity, not where they lie."""

    folder: str = runtime(..., "folder or URI of .parquet or .arrow files with a column input_ids or token_ids")
    max_length: int = Field(
        ge=8, le=8192, description="largest number of tokens of a passage, special tokens included; the rest is cut"
    )


def tokens_content(folder: str) -> dict[str, Any]:
    """Fingerprints of the files, for the step's identity.

    Raises:
        UserError: if there are none.
    """
    place = Place.named(folder)
    return {"files": {name: (place / name).digest() for name in token_files(place)}}


def read_tokens(config: ReadTokensConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; input `like`, the tokens whose vocabulary these share. Empty rows go to quarantine.jsonl.

    Raises:
        UserError: naming file and row, for a token id beyond the vocabulary, padding, or special tokens that other
            rows have not; if no row is left.
    """
    start_afresh(out)
    tokenizer = (inputs["like"].place / "tokenizer").local()
    (out / "tokenizer").upload(tokenizer)
    with (out / "quarantine.jsonl").writing() as quarantine:
        reading = _TokenReading(config, Vocabulary.of(tokenizer), quarantine)
        blocks = read_token_files(Place.named(config.folder))
        kept = write_shards((reading.rows(block) for block in blocks), out / "passages", PASSAGES)
    if not kept:
        raise UserError(f"tokens:{config.folder}: there is no row with tokens in it")
    log.info("%s: %d rows of %d read, %d of them cut", config.folder, kept, reading.read, reading.cut)
    return {
        **finish_tokens(out, TOKENISED_QUERIES.empty_table(), reading.cut),
        "had_special_tokens": reading.framed,
        "rows_read": reading.read,
        "rows_kept": kept,
        "rows_cut": reading.cut,
        "rows_quarantined": {EMPTY: reading.read - kept},
    }


class _TokenReading:
    """One reading of a folder. framed: whether rows come with special tokens at their ends; none: not seen yet."""

    def __init__(self, config: ReadTokensConfig, vocabulary: Vocabulary, quarantine: BinaryIO) -> None:
        self._config, self._vocabulary, self._quarantine = config, vocabulary, quarantine
        self.framed: bool | None = None
        self.read = self.cut = 0

    def rows(self, block: TokenBlock) -> pa.Table:
        """A block's rows as a tokens artifact stores them, without the empty ones."""
        ends_B = np.cumsum(block.lengths)
        starts_B = ends_B - block.lengths
        self._check_ids(block)
        self._look(block, starts_B, ends_B)
        inner_B = block.lengths - 2 * bool(self.framed)
        kept_K = np.flatnonzero(inner_B > 0)
        for row in np.flatnonzero(inner_B <= 0).tolist():
            line = {"kind": EMPTY, "file": block.file, "row": block.first + row, "doc_id": block.doc_ids[row].as_py()}
            self._quarantine.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        inner_K = np.minimum(inner_B[kept_K], self._config.max_length - 2)
        self.read += len(inner_B)
        self.cut += int((inner_K < inner_B[kept_K]).sum())
        ids = _add_specials(block.flat, starts_B[kept_K] + bool(self.framed), inner_K, self._vocabulary)
        return pa.table([block.doc_ids.take(pa.array(kept_K)), ids], schema=PASSAGES)

    def _check_ids(self, block: TokenBlock) -> None:
        size, pad_id = self._vocabulary.size, self._vocabulary.pad_id
        for token in np.flatnonzero((block.flat < 0) | (block.flat >= size))[:1]:
            fault = (
                f"token id {block.flat[token]}, but the vocabulary of the recipe's corpus has {size:,} entries, "
                "from 0. Name the tokenizer that made the rows: tokens.tokenizer=FOLDER"
            )
            raise self._refusal(block, token, fault)
        for token in np.flatnonzero(block.flat == pad_id)[:1]:
            raise self._refusal(block, token, f"token id {pad_id} is padding; write rows without padding")

    def _look(self, block: TokenBlock, starts_B: Ints, ends_B: Ints) -> None:
        """Whether rows have special tokens at their ends, which all must agree in."""
        filled_F = np.flatnonzero(block.lengths)
        begins_F = block.flat[starts_B[filled_F]] == self._vocabulary.cls_id
        closes_F = block.flat[ends_B[filled_F] - 1] == self._vocabulary.sep_id
        if self.framed is None and len(filled_F):
            self.framed = bool(begins_F[0])
        for row in filled_F[(begins_F != bool(self.framed)) | (closes_F != bool(self.framed))][:1]:
            fault = (
                "[CLS] and [SEP] at its ends: only one is there, or the rows before it differ; write all rows with "
                "both, or all without"
            )
            raise self._refusal(block, starts_B[row], fault)

    def _refusal(self, block: TokenBlock, token: int, fault: str) -> UserError:
        row = int(np.searchsorted(np.cumsum(block.lengths), token, side="right"))
        return UserError(f"tokens:{self._config.folder}, {block.file}, row {block.first + row}: {fault}")


def _add_specials(flat_T: Ints, starts_K: Ints, lengths_K: Ints, vocabulary: Vocabulary) -> pa.ListArray:
    """[CLS], `lengths` tokens from `starts` on, [SEP], for each row; list<int32>."""
    ends_K = np.cumsum(lengths_K + 2)
    begins_K = ends_K - lengths_K - 2
    total = int(lengths_K.sum())
    ids_T = np.empty(total + 2 * len(lengths_K), dtype=np.int32)
    inner_T = np.ones(len(ids_T), dtype=bool)
    inner_T[begins_K] = inner_T[ends_K - 1] = False
    shift_K = starts_K - (np.cumsum(lengths_K) - lengths_K)
    ids_T[inner_T] = flat_T[np.arange(total) + np.repeat(shift_K, lengths_K)]
    ids_T[begins_K], ids_T[ends_K - 1] = vocabulary.cls_id, vocabulary.sep_id
    offsets = np.concatenate([[0], ends_K]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids_T))
