"""What sentence-transformers itself gives for a model folder on a BEIR collection: its `encode_query` and
`encode_document` of 'title text', exact search in numpy, nDCG@10 by ir-measures. The figures that
`jobs/evaluate_retriever.py --model FOLDER` must reach are in docs/results/foreign_models.md.

    python tests/speed/foreign_models.py FOLDER /data/cranfield test
"""

import csv
import gzip
import json
import sys
from pathlib import Path

import ir_measures
import numpy as np
import torch
from ir_measures import Qrel, ScoredDoc
from sentence_transformers import SentenceTransformer

DEPTH = 100


def read_lines(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def read_qrels(path: Path) -> list[Qrel]:
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))[1:]
    return [Qrel(query_id, doc_id, int(grade)) for query_id, doc_id, grade in rows]


def main(folder: str, collection: Path, splits: list[str]) -> None:
    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    passages, queries = read_lines(collection / "corpus.jsonl.gz"), read_lines(collection / "queries.jsonl.gz")
    doc_ids = [passage["_id"] for passage in passages]
    texts = [f"{passage['title']} {passage['text']}".strip() for passage in passages]
    passages_ND = model.encode_document(texts, batch_size=32, show_progress_bar=False)
    similarity = model.similarity_fn_name
    for split in splits:
        qrels = read_qrels(collection / "qrels" / f"{split}.tsv")
        judged = {qrel.query_id for qrel in qrels}
        wanted = [query for query in queries if query["_id"] in judged]
        queries_QD = model.encode_query([query["text"] for query in wanted], batch_size=32, show_progress_bar=False)
        run = []
        for query, vector_D in zip(wanted, queries_QD, strict=True):
            scores_N = model.similarity(torch.from_numpy(vector_D[None]), torch.from_numpy(passages_ND))[0].numpy()
            best = np.argsort(-scores_N, kind="stable")[:DEPTH]
            run += [ScoredDoc(query["_id"], doc_ids[row], float(scores_N[row])) for row in best]
        found = ir_measures.calc_aggregate([ir_measures.parse_measure("nDCG@10")], qrels, run)
        values = {str(measure): round(value, 6) for measure, value in found.items()}
        print(collection.name, split, len(wanted), "queries", similarity, model.max_seq_length, values, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
