"""SQuAD v1.1 as a retrieval collection in BEIR's layout, from its two official files:

    python docs/data/squad.py train-v1.1.json dev-v1.1.json data/squad

Passages are the distinct paragraphs of both files. A query is a distinct question of a split, and every paragraph that
it was asked of is relevant. Half of the official dev articles, drawn with a fixed seed, are dev; the others are test.
"""

import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

SEED = 20240607


def read_articles(path: str) -> dict[str, list[Any]]:
    """Title -> paragraphs, in the order of the titles, which the file writes as addresses do (`Kievan_Rus%27`)."""
    articles = json.loads(Path(path).read_text("utf-8"))["data"]
    return dict(sorted((unquote(article["title"]), article["paragraphs"]) for article in articles))


def split_articles(train: str, official_dev: str) -> dict[str, dict[str, list[Any]]]:
    """Split -> articles."""
    held_out = read_articles(official_dev)
    titles = list(held_out)
    random.Random(SEED).shuffle(titles)
    dev = set(titles[: len(titles) // 2])
    return {
        "train": read_articles(train),
        "dev": {title: paragraphs for title, paragraphs in held_out.items() if title in dev},
        "test": {title: paragraphs for title, paragraphs in held_out.items() if title not in dev},
    }


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def main(train: str, official_dev: str, out: str) -> None:
    passages: dict[str, dict[str, str]] = {}
    queries: list[dict[str, str]] = []
    for split, articles in split_articles(train, official_dev).items():
        asked: dict[str, str] = {}
        judged: dict[tuple[str, str], None] = {}
        for title, paragraphs in articles.items():
            for paragraph in paragraphs:
                text = paragraph["context"].strip()
                new = {"_id": f"p{len(passages) + 1:05d}", "title": title.replace("_", " "), "text": text}
                passage = passages.setdefault(text, new)
                for qa in paragraph["qas"]:
                    query = asked.setdefault(qa["question"].strip(), f"{split}-{len(asked) + 1:05d}")
                    judged[query, passage["_id"]] = None
        queries += [{"_id": query, "text": text} for text, query in asked.items()]
        rows = [f"{query}\t{passage}\t1" for query, passage in judged]
        write_lines(Path(out, "qrels", f"{split}.tsv"), ["query-id\tcorpus-id\tscore", *rows])
    for name, records in (("corpus", passages.values()), ("queries", queries)):
        write_lines(Path(out, f"{name}.jsonl"), (json.dumps(row, ensure_ascii=False) for row in records))
    print(f"{out}: {len(passages):,} passages, {len(queries):,} queries")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
