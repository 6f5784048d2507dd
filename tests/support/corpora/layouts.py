"""Collections of 50 passages, each laid out as the real one is distributed, with its quirks; and the way from there to
measures. Passage n holds the word `word<n>`, which no other passage holds.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.evaluation.step import EvaluateConfig, evaluate_ranked
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.corpora.collections import json_lines, write

COUNT = 50


def passage(n: int) -> str:
    return f"word{n} stands in passage number {n} of the set"


def lines(rows: Sequence[Sequence[object]], *, end: str = "\n", between: str = "\t") -> bytes:
    return "".join(between.join(map(str, row)) + end for row in rows).encode()


def read(name: str, out: Path, **fields: Any) -> Artifact:
    """The prepared corpus, in official splits, without a single bad row tolerated unless a field says otherwise."""
    config = CorpusConfig(**{"name": name, "splits": "official", "bad_rows_threshold": 0.0, **fields})
    return Artifact(Place(str(out)), {"fingerprint": "corpus", "result": prepare(config, {}, Place(str(out)))})


def evaluated(
    corpus: Artifact, split: str, lists: Mapping[str, Sequence[str]], measures: Sequence[str], **fields: Any
) -> dict[str, Any]:
    """The evaluation step's result for made-up lists, the best passage first."""
    rows = [(query, doc, -float(place)) for query, docs in lists.items() for place, doc in enumerate(docs)]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names=["query_id", "doc_id", "score"])
    made = Place(f"{corpus.place}-lists")
    ranked.write(made / "ranked" / f"{split}.parquet", [ranked.order(table)])
    inputs = {"corpus": corpus, "ranked": Artifact(made, {"result": {}})}
    config = EvaluateConfig(split=split, measures=tuple(measures), **fields)
    return evaluate_ranked(config, inputs, Place(f"{corpus.place}-values"))


def write_msmarco(folder: Path) -> None:
    """`collectionandqueries` as it unpacks: dev.small and eval.small are parts of dev and eval, most of which have no
    judgement; judgements of four columns; a query numbered like a passage; lines may end as on Windows.
    """
    write(folder / "collection.tsv", lines([(n, passage(n)) for n in range(COUNT)], end="\r\n"))
    asked = {"train": range(0, 10), "dev.small": range(200, 204), "dev": range(200, 208)}
    asked |= {"eval.small": range(300, 302), "eval": range(300, 305)}
    for split, ids in asked.items():
        write(folder / f"queries.{split}.tsv", lines([(n, f"where is word{n % 50}") for n in ids]))
    write(folder / "qrels.train.tsv", lines([(n, 0, n + 1, 1) for n in range(10)]))
    judged = [(200, 0, 0, 1), (200, 0, 1, 1), *((n, 0, n - 199, 1) for n in (201, 202, 203))]
    write(folder / "qrels.dev.small.tsv", lines(judged))


def write_deep_learning(folder: Path) -> None:
    """Beside MS MARCO: queries that eval holds too, most of them without judgements; grades 0 to 3, divided by blanks,
    with Q0 in 2019's and 0 in 2020's second column.
    """
    write(folder / "msmarco-test2019-queries.tsv", lines([(n, f"where is word{n % 50}") for n in range(300, 304)]))
    rows = [(300, "Q0", 10, 3), (300, "Q0", 11, 2), (300, "Q0", 12, 1), (300, "Q0", 13, 0), (301, "Q0", 20, 1)]
    write(folder / "2019qrels-pass.txt", lines(rows, between=" "))
    write(folder / "msmarco-test2020-queries.tsv.gz", lines([(n, f"and word{n % 50}") for n in (400, 401)]))
    write(folder / "2020qrels-pass.txt", lines([(400, 0, 3, 3)], between=" "))


def write_arguana(folder: Path, *, packed: bool = True) -> None:
    """BEIR's ArguAna: a query is a passage, by id and text; judged relevant is its counter-argument, two passages on.
    Only a test split; judgements with a header; packed.
    """
    end = ".gz" if packed else ""
    texts = {n: f" {passage(n)} {passage(n + 2)}" for n in range(COUNT)}
    docs = [{"_id": f"test-{n}", "title": f"topic {n // 4}", "text": text} for n, text in texts.items()]
    write(folder / f"corpus.jsonl{end}", json_lines(docs))
    queries = [{"_id": doc["_id"], "text": doc["text"], "metadata": {}} for doc in docs[:10]]
    write(folder / f"queries.jsonl{end}", json_lines(queries))
    qrels = [("query-id", "corpus-id", "score"), *((f"test-{n}", f"test-{n + 2}", 1) for n in range(10))]
    write(folder / f"qrels/test.tsv{end}", lines(qrels))


def write_nq(folder: Path, *, form: str = "csv") -> None:
    """DPR's files: passages with a header, in CSV's quotes; questions without ids; answers as Python writes a list."""
    texts = {0: 'the "Big" Apple is New York City', 1: "Beyoncé sang in Zürich", 2: "in 1969, on July 20th"}
    docs = [(n + 1, texts.get(n, passage(n)), f"Title {n}") for n in range(COUNT)]
    table = lines([(n, _quoted(text), title) for n, text, title in docs])
    write(folder / "psgs_w100.tsv", b"id\ttext\ttitle\n" + table)
    test = [
        ("where is the big apple", "['New York', \"the city that doesn't sleep\"]"),
        ("who sang", '["BEYONCE\\u0301", "Zurich"]' if form == "json" else "['Beyonce\u0301', 'Zurich']"),
        ("when was it", "['July 20', 'July 20th']"),
        ("what is nowhere", "['nowhere to be found']"),
    ]
    suffix = ".csv" if form == "csv" else ".qa.csv"
    write(folder / f"nq-test{suffix}", lines([(question, _quoted(answers)) for question, answers in test]))
    write(folder / "nq-dev.csv", lines([("which passage", "['word7']")]))


def write_dpr_training(folder: Path) -> None:
    """Beside NQ's files, as DPR's archive has it: indented, with more positives and negatives than are judged."""
    items = []
    for n in range(10, 16):
        asked = {"dataset": "nq_train_psgs_w100", "question": f"which is word{n}", "answers": [f"word{n}"]}
        positive = {"title": "t", "text": passage(n), "score": 1000, "passage_id": str(n + 1)}
        hard = [{"title": "t", "text": "[{,]}" * 9, "passage_id": "7"}]
        contexts = {"positive_ctxs": [positive, {"psg_id": "9"}], "negative_ctxs": [], "hard_negative_ctxs": hard}
        items.append({**asked, **contexts})
    write(folder / "biencoder-nq-train.json", json.dumps(items, indent=4).encode())
    write(folder / "nq-train.csv", lines([("not read", "['no']")]))


def _quoted(cell: str) -> str:
    """As csv writes a cell that holds quotes."""
    return '"' + cell.replace('"', '""') + '"' if '"' in cell else cell


def write_tripclick(folder: Path) -> None:
    """The unpacked archive: a folder `benchmark`; documents and topics as elements; head has two sets of judgements."""
    for part in range(2):
        docs = "".join(
            f"<DOC>\n<DOCNO>{n}</DOCNO>\n<TITLE>Study {n}</TITLE>\n<URL>x</URL>\n"
            f"<TEXT>\n{passage(n)}, p < 0.05\n</TEXT>\n</DOC>\n"
            for n in range(part, COUNT, 2)
        )
        write(folder / f"benchmark/documents/docs_grp_{part}.txt", docs.encode())
    first = {"train": 100, "val": 200, "test": 300}
    for split, base in first.items():
        for place, (own, count) in enumerate((("head", 2), ("torso", 1), ("tail", 1))):
            ids = range(base + 10 * place, base + 10 * place + count)
            topics = "".join(f"<top>\n\n<num> Number: {n}\n<title> word{n % 50}\n\n</top>\n\n" for n in ids)
            write(folder / f"benchmark/topics/topics.{own}.{split}.txt", topics.encode())
            raw = [(n, 0, doc, grade) for n in ids for doc, grade in ((1, 1), (2, 1), (3, 0))]
            write(folder / f"benchmark/qrels/qrels.raw.{own}.{split}.txt", lines(raw))
        dctr = [(n, 0, doc, grade) for n in (base, base + 1) for doc, grade in ((1, 3), (2, 1), (3, 0))]
        write(folder / f"benchmark/qrels/qrels.dctr.head.{split}.txt", lines(dctr))


def write_texts(folder: Path) -> None:
    write(folder / "a.jsonl", json_lines([{"text": f"text {n} of some"} for n in range(20)]))
    write(folder / "b.jsonl.gz", json_lines([{"_id": f"b{n}", "title": "t", "text": f"other {n}"} for n in range(20)]))
