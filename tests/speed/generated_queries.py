"""How good the queries of a trained generator are: its loss on unseen queries, and whether they find the passages that
they were written for.

    python -m tests.speed.generated_queries --generator STORE/generator/FINGERPRINT [--passages 300]

Beside the sampled queries stand those that people wrote for the same passages. BM25 (bm25s, its defaults) searches all
passages of the collection. A query is copied if all its words stand in its passage.
"""

import argparse
import re
from dataclasses import replace
from pathlib import Path

import bm25s
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from midmask.artifact import Artifact, Place, load
from midmask.derived.generate import GenerateConfig
from midmask.queries.config import QueriesConfig
from midmask.queries.generator import ModelQueries
from midmask.queries.made import Passage
from midmask.queries.train import GeneratorConfig, generator_setup
from midmask.randomness.texts import fixed_sample
from midmask.training.order import Order, local_reader
from midmask.training.reader import reads

ROWS, STEPS = 32, 20
SHOWN = 6


def loss_of(artifact: Artifact, inputs: dict[str, Artifact], split: str, *, swapped: bool = False) -> float:
    """Mean loss of a token over `STEPS` batches of a split's queries.

    Args:
        swapped: each query gets the passage of another one: what a model loses by it is what it reads of passages.
    """
    from transformers import EncoderDecoderModel

    setup = generator_setup(GeneratorConfig.model_validate(artifact.record["config"]), inputs)
    _, objective, words = setup.build()
    trained = EncoderDecoderModel.from_pretrained((artifact.place / "model").local())
    objective.backbone.model.load_state_dict(trained.state_dict())
    objective.eval()
    order = Order(replace(setup.rows, split=split), ROWS, 0, 0, 1, 0, STEPS)
    total = count = 0.0
    for read in reads(local_reader, order, steps=STEPS, pad_id=words.pad_id, micro_batch=None, pin=False):
        texts = read.micro[0].texts
        if swapped:
            passage = texts["passage"]
            ids_BL, lengths_B = passage.ids_BL.roll(1, 0), passage.lengths_B.roll(1, 0)
            texts["passage"] = replace(passage, ids_BL=ids_BL, lengths_B=lengths_B)
        with torch.no_grad():
            part = objective(objective.draw(read.micro[0])).parts["generation"]
        total, count = total + float(part.total), count + float(part.count)
    return total / count


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def describe(name: str, pairs: list[tuple[str, str, int]], index: bm25s.BM25) -> None:
    """Args: pairs: query, its passage, and the passage's row."""
    found, _ = index.retrieve(bm25s.tokenize([query for query, _, _ in pairs], show_progress=False), k=20)
    ranks = [np.flatnonzero(found[at] == row) for at, (_, _, row) in enumerate(pairs)]
    hits = {k: sum(len(rank) > 0 and rank[0] < k for rank in ranks) for k in (1, 20)}
    copied = sum([words_of(query) <= words_of(text) for query, text, _ in pairs])
    length = np.mean([len(query.split()) for query, _, _ in pairs])
    print(
        f"{name}: {len(pairs)} queries, {length:.1f} words, {copied} copied; BM25 finds the passage of "
        f"{hits[1]} first, of {hits[20]} among 20"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--passages", type=int, default=300)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    artifact = load(Place(flags.generator))
    inputs = {name: load(Place(place)) for name, place in artifact.record["inputs"].items()}
    for split in ("train", "dev"):
        own, other = (loss_of(artifact, inputs, split, swapped=swapped) for swapped in (False, True))
        print(f"loss of a token on {split}: {own:.3f}, with another's passage {other:.3f}")
    corpus = Path(inputs["corpus"].place.uri)
    docs = pq.read_table(corpus / "docs")
    qrels = pq.read_table(corpus / "qrels.parquet").filter(pc.field("split") == "dev")
    queries = {row["query_id"]: row["text"] for row in pq.read_table(corpus / "queries.parquet").to_pylist()}
    row_of = {doc_id: row for row, doc_id in enumerate(docs["doc_id"].to_pylist())}
    asked = dict(zip(qrels["doc_id"].to_pylist(), qrels["query_id"].to_pylist(), strict=True))
    texts = [f"{title} {text}" for title, text in zip(docs["title"].to_pylist(), docs["text"].to_pylist(), strict=True)]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    chosen = fixed_sample(sorted(asked), flags.passages)
    passages = [
        Passage(doc_id, docs["title"][row_of[doc_id]].as_py(), docs["text"][row_of[doc_id]].as_py())
        for doc_id in chosen
    ]
    config = QueriesConfig(per_passage=1, generate=GenerateConfig())
    made = {one.doc_id: one.text for one in ModelQueries(f"{artifact.place}/model", config).queries(passages)}
    human = {doc_id: queries[asked[doc_id]] for doc_id in chosen}
    for name, found in (("made", made), ("human", human)):
        describe(name, [(text, texts[row_of[one]], row_of[one]) for one, text in found.items()], index)
    for doc_id in chosen[:SHOWN]:
        print(f"- {made.get(doc_id, '')!r} | {human[doc_id]!r} | {texts[row_of[doc_id]][:160]!r}")


if __name__ == "__main__":
    main()
