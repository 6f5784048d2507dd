"""Encoding Wikipedia passages against sentence-transformers' `encode`: the same folder, texts and vectors.

    python -m tests.speed.encoding [--passages 10000] [--rounds 3] [--threads 2] [--cpu-time]

A mini backbone (4 layers, width 256) with random weights, pooled by [CLS] and by the mean; passages of at most 128
tokens. sentence-transformers tokenises and encodes in batches of 32. Ours does the same from texts; and, as in a run,
from token rows, which are made once for training, mining and evaluation. Taken in turn in one process, medians.
"""

import argparse
import gzip
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.retrieve.models import open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.speed.steps import interleaved

WIKI = Path(__file__).resolve().parents[3] / "shared" / "data" / "wiki" / "corpus.jsonl.gz"
GOALS = {"cls": 1.5, "mean": 1.2}
LENGTH, BLOCK = 128, 2048


def wiki_texts(count: int) -> list[str]:
    with gzip.open(WIKI, "rt", encoding="utf-8") as lines:
        rows = (json.loads(line) for line in itertools.islice(lines, count))
        return [f"{row['title']} {row['text']}".strip() for row in rows]


def write_tokenizer(folder: Path, texts: list[str]) -> None:
    """A WordPiece tokenizer as midmask trains it."""
    from midmask.artifact import Artifact, Place
    from midmask.tokens import TokensConfig, tokenise
    from tests.support.retrieve.collection import write_parts

    docs = [(str(row), "", text) for row, text in enumerate(texts[:2000])]
    corpus = write_parts(Place(str(folder / "corpus")), docs=docs, queries=[("q", "a")], qrels=[("dev", "q", "0", 1)])
    tokenise(TokensConfig(vocabulary_size=8000), {"corpus": Artifact(corpus.place, corpus.record)}, Place(str(folder)))


def works(folder: Path, pooling: str, texts: list[str], threads: int) -> dict[str, Callable[[], np.ndarray]]:
    """What is timed, by name."""
    from sentence_transformers import SentenceTransformer

    vocabulary, tokenizer = Vocabulary.of(folder / "tokenizer"), load_tokenizer(folder / "tokenizer")
    backbone = build_backbone(BackboneConfig(name="mini"), vocabulary, seed=0)
    backbone.represent_as(Representation(dense="mean" if pooling == "mean" else "cls"), seed=0)
    save_bi_encoder(backbone, folder / pooling, folder / "tokenizer", max_length=LENGTH)
    other = SentenceTransformer(str(folder / pooling), device="cpu")
    encoder = open_encoder(folder / pooling, vocabulary, "passage")
    encoding = Encoding(pad_id=vocabulary.pad_id, threads=threads)

    def tokenised() -> list[np.ndarray]:
        rows = tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
        return [np.array(row, dtype=np.int32) for row in rows]

    def ours(rows: list[np.ndarray]) -> np.ndarray:
        parts = [encode_rows(encoder, rows[at : at + BLOCK], encoding).dense_ND for at in range(0, len(rows), BLOCK)]
        return np.concatenate(parts)

    kept = tokenised()
    return {
        "sentence-transformers": lambda: other.encode(texts, batch_size=32, show_progress_bar=False),
        "from texts": lambda: ours(tokenised()),
        "from token rows": lambda: ours(kept),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: processor time of one thread")
    options = parser.parse_args()
    threads = 1 if options.cpu_time else options.threads
    torch.set_num_threads(threads)
    texts = wiki_texts(options.passages)
    with tempfile.TemporaryDirectory() as name:
        write_tokenizer(Path(name), texts)
        for pooling, goal in GOALS.items():
            timed = works(Path(name), pooling, texts, threads)
            vectors = {kind: work() for kind, work in timed.items()}
            apart = max(float(np.abs(vectors["sentence-transformers"] - found).max()) for found in vectors.values())
            clock = time.process_time if options.cpu_time else time.perf_counter
            seconds = interleaved(timed, options.rounds, clock)
            other = seconds.pop("sentence-transformers")
            ratios = ", ".join(f"{kind} {each:.2f} s, {other / each:.2f} times" for kind, each in seconds.items())
            print(
                f"{pooling}: sentence-transformers {other:.2f} s; {ratios} (goal {goal}); {apart:.1e} apart", flush=True
            )


if __name__ == "__main__":
    main()
