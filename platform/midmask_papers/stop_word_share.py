"""What share of masked tokens are stop-words or punctuation: uniform masks, and ROM's by idf and BM25.

    python -m midmask_papers.stop_word_share --corpus beir:data/wiki [--vocabulary 30522] [--storage FOLDER]

15% of every passage's tokens are masked, 80 passages at a time; the vocabulary is trained on the corpus. The paper
(Long et al. 2022) says that about 40% of randomly masked tokens are stop-words or punctuation, by the lists of NLTK and
gensim. Here a word counts that is in NLTK's list of 179.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from midmask.core.batch import TokenRows
from midmask.core.config import override
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.masking.corruption import select_highest
from midmask.masking.randomness import Purpose, row_keys
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.text.vocabulary import Vocabulary, load_tokenizer, speller

RATIO = 0.15
TEMPERATURES = (0.0, 0.5, 1.0, 2.0)


def artifacts(runner: Runner, corpus: str, vocabulary: int, source: str) -> tuple[Artifact, Artifact]:
    """Tokens and term weights of a corpus, made or found."""
    changes = {"corpus.name": corpus, "tokens.vocabulary_size": vocabulary, "tokens.max_length": 128}
    recipe = override(RECIPES["rom"](), {**changes, "weights.source": source})
    step = plan(recipe).pretrained
    assert step is not None
    return runner.compute(step.inputs["tokens"]), runner.compute(step.inputs["weights"])


def batches(tokens: Artifact, weights: Artifact, pad_id: int, size: int = 80) -> Iterator[TokenRows]:
    """All passages with their weights, padded."""
    first = 0
    for name in (tokens.place / "passages").names():
        ids = read_table(tokens.place / "passages" / name)["ids"].to_numpy()
        token_weights = read_table(weights.place / "weights" / name)["weights"].to_numpy()
        pairs = zip(ids, token_weights, strict=True)
        rows = [(torch.from_numpy(i.astype(np.int64)), torch.from_numpy(w.copy())) for i, w in pairs]
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            ids_BL, weights_BL = (
                torch.nn.utils.rnn.pad_sequence(list(column), batch_first=True, padding_value=value)
                for column, value in zip(zip(*some, strict=True), (pad_id, 0.0), strict=True)
            )
            lengths_B = torch.tensor([len(ids) for ids, _ in some])
            keys_B = row_keys(0, 0, np.arange(first, first + len(some)))
            yield TokenRows(ids_BL, lengths_B, keys_B, weights_BL)
            first += len(some)


def punctuation(vocabulary: Vocabulary, tokens: Artifact) -> torch.Tensor:
    """Which stop tokens are made of punctuation, bool [V]; the others are words."""
    tokenizer = load_tokenizer((tokens.place / "tokenizer").local())
    spell = speller(tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(range(vocabulary.size))
    wordless = [not any(letter.isalnum() for letter in spell([piece])) for piece in pieces]
    return vocabulary.stop_V & torch.tensor(wordless)


def shares(tokens: Artifact, weights: Artifact, temperature: float | None) -> tuple[float, float, int]:
    """(stop-words, punctuation) as shares of the masked tokens, and their number. No temperature: uniform."""
    vocabulary = Vocabulary.of((tokens.place / "tokenizer").local())
    kinds_VK = torch.stack([vocabulary.stop_V, punctuation(vocabulary, tokens)], 1)
    counts_K, masked = torch.zeros(2, dtype=torch.int64), 0
    for text in batches(tokens, weights, vocabulary.pad_id):
        rows = text if temperature is not None else replace(text, weights_BL=None)
        chosen_BL = select_highest(
            rows,
            vocabulary,
            ratio=RATIO,
            purpose=Purpose.SELECT,
            temperature=1.0 if temperature is None else temperature,
        )
        hit_RK = kinds_VK[text.ids_BL[chosen_BL]]
        counts_K, masked = counts_K + hit_RK.sum(0), masked + len(hit_RK)
    stops, marks = (counts_K / masked).tolist()
    return stops - marks, marks, masked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--storage", help="folder to keep the tokens and weights in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(Place(options.storage or scratch), LOCAL)
        print("| mask | temperature | stop-words | punctuation | together | masked tokens |")
        print("| :--- | ---: | ---: | ---: | ---: | ---: |")
        for source in ("idf", "bm25"):
            tokens, weights = artifacts(runner, options.corpus, options.vocabulary, source)
            for temperature in (None, *TEMPERATURES) if source == "idf" else TEMPERATURES:
                words, marks, masked = shares(tokens, weights, temperature)
                name, heat = ("uniform", "") if temperature is None else (f"ROM, {source}", f"{temperature:g}")
                print(f"| {name} | {heat} | {words:.1%} | {marks:.1%} | {words + marks:.1%} | {masked:,} |", flush=True)


if __name__ == "__main__":
    main()
