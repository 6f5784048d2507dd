"""What share of masked tokens are stop-words or punctuation: uniform masks, and ROM's by idf.

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
from midmask.text.vocabulary import Vocabulary

RATIO = 0.15


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


def stop_share(tokens: Artifact, weights: Artifact, *, weighted: bool) -> tuple[float, int]:
    """The share of stop-words and punctuation among masked tokens, and the number of these; weighted: ROM's masks."""
    vocabulary = Vocabulary.of((tokens.place / "tokenizer").local())
    stops = masked = 0
    for text in batches(tokens, weights, vocabulary.pad_id):
        rows = text if weighted else replace(text, weights_BL=None)
        chosen_BL = select_highest(rows, vocabulary, ratio=RATIO, purpose=Purpose.SELECT, temperature=1.0)
        hit_R = vocabulary.stop_V[text.ids_BL[chosen_BL]]
        stops, masked = stops + int(hit_R.sum()), masked + len(hit_R)
    return stops / masked, masked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--storage", help="folder to keep the tokens and weights in")
    options = parser.parse_args()
    changes = {"corpus.name": options.corpus, "tokens.vocabulary_size": options.vocabulary, "tokens.max_length": 128}
    step = plan(override(RECIPES["rom"](), changes)).pretrained
    assert step is not None, "ROM is a middle training"
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(Place(options.storage or scratch), LOCAL)
        tokens, weights = (runner.compute(step.inputs[name]) for name in ("tokens", "weights"))
        for name, weighted in (("uniform", False), ("ROM", True)):
            share, masked = stop_share(tokens, weights, weighted=weighted)
            print(f"{name}: {share:.1%} of {masked:,} masked tokens", flush=True)


if __name__ == "__main__":
    main()
