"""A small collection for the rounds: the passages of all dev queries among a sample of the others.

To encode a whole collection for every system of every round would take most of a small budget. Fewer passages are
easier to search, for all systems alike; the finalists search the whole collection.
"""

from typing import Any

from midmask.artifact import Artifact, Place, produce
from midmask.choice.traces import passages_in, queries_of, relevant_of
from midmask.corpora import CorpusConfig
from midmask.identity import fingerprint
from midmask.queries.collection import write_collection
from midmask.randomness.texts import fixed_sample

OTHERS = 2_000
"""Passages beside those of the dev queries."""

FOLDER = "rehearsals"
SPLIT = "dev"


def rehearsal(made: Artifact, collection: Place, name: str, passages: int, storage: Place) -> CorpusConfig | None:
    """The collection that rounds search, written once; None where the whole one is hardly larger.

    Args:
        made: the step's that made the queries. collection: its BEIR folder. name: of the collection.
    """
    if passages <= 2 * OTHERS:
        return None
    identity = fingerprint({"queries": made.fingerprint, "others": OTHERS})
    record = {"step": FOLDER, "fingerprint": identity, "config": {}, "inputs": {}}

    def write(out: Place) -> dict[str, Any]:
        relevant = relevant_of(collection, SPLIT)
        asked = queries_of(collection)
        kept = {passage for own in relevant.values() for passage in own}
        others = [one.doc_id for one in passages_in(collection) if one.doc_id not in kept]
        kept |= set(fixed_sample(others, OTHERS))
        texts = (one for one in passages_in(collection) if one.doc_id in kept)
        rows = ((query, str(asked[query]["text"]), "", "") for query in relevant)
        pairs = [(query, passage) for query, own in relevant.items() for passage in own]
        write_collection(out / name, texts, list(rows), {SPLIT: pairs})
        return {"passages": len(kept), "queries": len(relevant)}

    place = produce(storage / FOLDER / identity / name, record, write).place
    return CorpusConfig(name=f"beir:{place / name}", splits="official")
