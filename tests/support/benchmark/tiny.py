"""A collection and recipes so small that a whole experiment takes a second."""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from midmask.benchmark.layout import Layout
from midmask.core.config import flatten, override
from midmask.corpora.reader import corpus_identity
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey, T
from midmask.store.place import Place
from tests.support.corpora.collections import json_lines

WORDS = "amber birch cedar delta ember frost grove heath inlet jetty knoll larch marsh north ochre plume".split()
SPLITS = {"train": range(24), "dev": range(24, 36), "test": range(36, 48)}
ONE_STAGE = {
    "tokens.vocabulary_size": 300, "pretrain.steps": 4, "pretrain.batch_size": 8, "pretrain.threads": 1,
    "stages.0.train.steps": 2, "stages.0.train.batch_size": 4, "stages.0.train.threads": 1,
}  # fmt: skip
"""Settings of a recipe with one stage of fine-tuning."""

TWO_TRIALS = {
    "name": "two", "recipe": "retromae", "search": "grid", "baselines": [], "seeds": [0],
    "parameters": {"tokens.query_length": {"values": [16, 4]}},
    "rungs": {"shares": [0.5], "steps": 2, "reduction": 2},
    "settings": ONE_STAGE,
}  # fmt: skip
"""A search space, one of whose trials is behind at its rung: four tokens of a query tell less than all."""


def write_collection(folder: Path) -> str:
    """48 passages of eight words, a query being three of its passage's words, in BEIR's layout; its name."""
    (folder / "qrels").mkdir(parents=True)
    steps = (1, 2, 3, 5, 7, 11, 13, 4)
    texts = {n: [WORDS[(n * step + place) % 16] for place, step in enumerate(steps)] for n in range(48)}
    docs = [{"_id": f"d{n}", "title": f"number {n}", "text": " ".join(text)} for n, text in texts.items()]
    (folder / "corpus.jsonl").write_bytes(json_lines(docs))
    queries = [{"_id": f"q{n}", "text": " ".join(text[:3])} for n, text in texts.items()]
    (folder / "queries.jsonl").write_bytes(json_lines(queries))
    for split, numbers in SPLITS.items():
        rows = "".join(f"q{n}\td{n}\t1\n" for n in numbers)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return f"beir:{folder}"


def relevant(split: str) -> dict[str, str]:
    """The one relevant passage of every query."""
    return {f"q{number}": f"d{number}" for number in SPLITS[split]}


def reciprocal_ranks(run: Path, split: str) -> list[float]:
    """RR@10 of every query of the split, from a TREC run file, by hand."""
    found = dict.fromkeys(relevant(split), 0.0)
    for line in gzip.decompress(run.read_bytes()).decode().splitlines():
        query, _, doc, rank, *_ = line.split()
        if relevant(split)[query] == doc and int(rank) <= 10:
            found[query] = 1 / int(rank)
    return list(found.values())


SHORT: dict[str, object] = {"tokens.vocabulary_size": 300, "pretrain.steps": 3, "pretrain.batch_size": 8}
"""Changes that make any recipe short, by dotted path; `short` adds those of its stages."""


def short(recipe: Recipe, corpus: str) -> Recipe:
    """The recipe on the collection, each training two or three steps long."""
    changes = {"corpus.name": corpus, **SHORT}
    for path in flatten(recipe):
        if path.startswith("stages.") and path.endswith((".train.steps", ".train.batch_size")):
            changes[path] = 2 if path.endswith("steps") else 4
    return override(recipe, changes)


def run_here(layout: Layout, storage: Place) -> None:
    """Every target of a benchmark, one after the other in this process."""
    runner = Runner(storage, LOCAL)
    for cell in layout.cells:
        for step in cell.targets:
            runner.compute(step)


class Unread(Survey):
    """Takes each collection for one that holds its own name; all other places are read."""

    def find(self, read: Callable[[T], Mapping[str, Any]], of: T) -> Mapping[str, Any]:
        return {"files": getattr(of, "name", "")} if read is corpus_identity else super().find(read, of)
