"""Hugging Face datasets saved to disk (`save_to_disk` of the library `datasets`), read with pyarrow alone.

    corpus/     `_id` (or `id`), `text` and, if there is one, `title`
    queries/    `_id` (or `id`), `text`
    qrels/      one dataset a split, in train/, dev/ (or validation/), test/: `query-id`, `corpus-id`, `score`

That is how BEIR's collections on the hub look once their configurations are saved. Each dataset is a folder with
`dataset_info.json` and `state.json`, which names its Arrow files (IPC streams); or, where a DatasetDict was saved, a
folder with a dataset for each split. The splits of corpus/ and of queries/ are read together.

A folder that is one dataset holds texts for pre-training alone; those without an id are known by a hash, as in `beir`.

Files are read in the order of their names. Only files that lie in these folders are read; nothing is fetched or run.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from midmask.corpora.beir import passage_values, query_values
from midmask.corpora.chunks import Piece
from midmask.corpora.corpus import CorpusPieces, data_files, judgement_values, split_names
from midmask.corpora.opening import UnusableFile, measure_file
from midmask.corpora.reader import folder_reader
from midmask.corpora.texts import text_values
from midmask.errors import UserError
from midmask.store.place import Place
from midmask.store.tables import arrow_batches, describe_columns, readable

STATE = "state.json"
LAYOUT = (
    "corpus/ (_id, text[, title]), queries/ (_id, text) and qrels/SPLIT/ (query-id, corpus-id, score), each as "
    "save_to_disk of Hugging Face's datasets writes it (state.json and the .arrow files that it names); or one such "
    "dataset with a column text, for pre-training alone"
)

ArrowRow = dict[str, Any]


COLUMNS = {
    "docs": (("_id", "id"), ("text",), ("title",)),
    "queries": (("_id", "id"), ("text",)),
    "qrels": (("query-id",), ("corpus-id",), ("score",)),
}
"""Kind of rows -> the columns that are read: of each group those that are there. One must be, but for titles, and for
the ids of texts alone.
"""


@dataclass(frozen=True, kw_only=True)
class ArrowPiece(Piece):
    """An Arrow file; its lines are rows. columns: the names of those that are read."""

    folder: Place
    columns: tuple[str, ...]

    def records(self) -> Iterator[tuple[int, ArrowRow]]:
        return enumerate(self._rows(), start=1)

    def _rows(self) -> Iterator[ArrowRow]:
        file = self.folder / self.file
        with readable(file, f"wanted is {LAYOUT}"), file.reading() as stream:
            for batch in arrow_batches(stream)[1]:
                batch.validate(full=True)  # Arrow trusts the places that a file states
                columns = [batch[name].to_pylist() for name in self.columns]
                for values in zip(*columns, strict=True):
                    yield dict(zip(self.columns, values, strict=True))

    def quote(self, record: ArrowRow) -> str:
        return json.dumps(record, ensure_ascii=False, default=str)


def open_hf(folder: Place) -> CorpusPieces:
    """The corpus in a folder of saved datasets."""
    if not folder.is_folder():
        raise UserError(f"there is no folder {folder}; wanted is one with {LAYOUT}")
    if STATE in folder.names():
        return CorpusPieces(_pieces("docs", folder, {"": ""}, text_values, optional=("_id", "title")))
    datasets = {part: _datasets(folder, part) for part in ("corpus", "queries", "qrels")}
    missing = [f"{part}/" for part in datasets if not datasets[part]]
    if missing not in ([], ["queries/", "qrels/"]):
        raise UserError(f"{folder}: no dataset saved to disk in {', '.join(missing)}; wanted is {LAYOUT}")
    if "" in datasets["qrels"]:
        raise UserError(
            f"{folder}: qrels/ is a dataset without a split's name; move it to qrels/test/ (or train/, dev/)"
        )
    judged = split_names([f"qrels/{split}" for split in datasets["qrels"]], prefix="")
    return CorpusPieces(
        _pieces("docs", folder, datasets["corpus"], passage_values),
        _pieces("queries", folder, datasets["queries"], query_values),
        _pieces("qrels", folder, judged, judgement_values),
    )


def _datasets(folder: Place, part: str) -> dict[str, str]:
    """split -> path within the folder, of the datasets that a part consists of: "" -> the part if it is one itself."""
    names = data_files(folder / part)
    if STATE in names:
        return {"": part}
    return {split: f"{part}/{split}" for split in names if (folder / part / split / STATE).exists()}


def _pieces(
    rows: str,
    folder: Place,
    datasets: Mapping[str, str],
    parse: Callable[[ArrowRow], tuple[Any, ...]],
    optional: tuple[str, ...] = ("title",),
) -> list[ArrowPiece]:
    """A piece for each file of the datasets (split -> path); the split counts for judgements alone."""
    make = partial(ArrowPiece, rows=rows, folder=folder, parse=parse)
    pieces: list[ArrowPiece] = []
    for split, path in sorted(datasets.items()):
        dataset = folder / path if path else folder
        files = sorted(_files(dataset / STATE))
        if strange := [file for file in files if file not in dataset.names()]:
            raise UserError(
                f"{dataset / STATE} names files that are not beside it: {strange[0]!r}; save the dataset again"
            )
        if not files and rows != "docs":
            raise UnusableFile(f"{dataset} is a dataset without rows; add {rows}, or remove it")
        for name in files:
            size, columns = _find_columns(dataset / name, COLUMNS[rows], optional)
            file = f"{path}/{name}" if path else name
            pieces.append(make(file=file, size=size, split=split if rows == "qrels" else "", columns=columns))
    return pieces


def _find_columns(
    file: Place, groups: Sequence[tuple[str, ...]], optional: tuple[str, ...]
) -> tuple[int, tuple[str, ...]]:
    """The bytes of the columns to read, by their share of the first batch; and those of them that are there.

    Raises:
        UserError: naming a column that is missing, and those that are there.
    """
    with readable(file, f"wanted is {LAYOUT}"), file.reading() as stream:
        schema, batches = arrow_batches(stream)
        first = next(batches, None)
    columns = tuple(name for names in groups for name in names if schema.names.count(name) == 1)
    for names in groups:
        if names[0] not in optional and not set(names) & set(columns):
            raise UserError(
                f"{file} has no column {names[0]} among its columns {describe_columns(schema)}; wanted is {LAYOUT}"
            )
    size = measure_file(file)
    if first is not None:
        read = sum(first[name].get_total_buffer_size() for name in columns)
        size = round(size * read / max(1, first.get_total_buffer_size()))
    return size, columns


def _files(state: Place) -> list[str]:
    """The names of Arrow files in a state.json."""
    with readable(state, f"wanted is {LAYOUT}"):
        data = state.read()
    try:
        return [str(entry["filename"]) for entry in json.loads(data)["_data_files"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{state}: no list '_data_files' in it; save the dataset again") from None


READER = folder_reader(LAYOUT, open_hf)
