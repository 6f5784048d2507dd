"""The step "join": several prepared collections as one, passages alone, for a middle training that reads them all."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from midmask.artifact import Artifact, Place, start_afresh
from midmask.corpora.writer import GROUP_ROWS, QRELS, QUERIES, write_shards, write_table
from midmask.errors import UserError
from midmask.identity import Config


class JoinConfig(Config):
    """Names of the collections that are joined, in order.

    Raises:
        UserError: if two collections have one name, since their ids could be equal.
    """

    names: tuple[str, ...] = Field(min_length=1, description="short names, which ids begin with")

    @field_validator("names")
    @classmethod
    def _each_name_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"two collections are named {name!r}, and ids begin with that name; rename the folder of one, or "
                    "name a collection once"
                )
        return names


def join(config: JoinConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Inputs corpus0, corpus1, … in the order of `names`; writes docs/, and queries and judgements that are empty.

    A passage `d7` of the collection `wiki` is `wiki/d7`. One row group is held in memory. The result counts passages,
    also by collection.
    """
    start_afresh(out)
    sources = [inputs[f"corpus{number}"].place for number in range(len(config.names))]
    counts = [0] * len(sources)

    def tables() -> Iterator[pa.Table]:
        for number, (name, source) in enumerate(zip(config.names, sources, strict=True)):
            for table in _read_passages(source, f"{name}/"):
                counts[number] += len(table)
                yield table

    passages = write_shards(tables(), out / "docs")
    write_table(iter([QUERIES.empty_table()]), out / "queries.parquet", QUERIES)
    write_table(iter([QRELS.empty_table()]), out / "qrels.parquet", QRELS)
    by_name = [{"name": name, "passages": count} for name, count in zip(config.names, counts, strict=True)]
    return {"name": "+".join(config.names), "passages": passages, "queries": 0, "collections": by_name}


def _read_passages(corpus: Place, prefix: str) -> Iterator[pa.Table]:
    """The passages of a corpus, a row group at a time, with the prefix before their ids."""
    for shard in (corpus / "docs").names():
        with (corpus / "docs" / shard).reading() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(batch_size=GROUP_ROWS):
                ids = pc.binary_join_element_wise(prefix, batch["doc_id"], "")
                yield pa.Table.from_batches([batch.set_column(batch.schema.names.index("doc_id"), "doc_id", ids)])
