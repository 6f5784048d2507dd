"""What share of masked tokens are stop-words or punctuation: uniform masks, and ROM's by idf.

    python -m midmask_papers.stop_word_share --corpus beir:data/wiki [--vocabulary 30522] [--storage FOLDER]

15% of every passage's tokens are masked, 80 passages at a time; the vocabulary is trained on the corpus. The paper
(Long et al. 2022) says that about 40% of randomly masked tokens are stop-words or punctuation, by the lists of NLTK and
gensim. Here a word counts that is in NLTK's list of 179.
"""

import argparse
import tempfile

import numpy as np

from midmask.core.config import override
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.masking.corruption import select_highest
from midmask.masking.randomness import Purpose
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from midmask.training.batches import padded
from midmask.training.pretraining_rows import Passages

RATIO, AT_ONCE = 0.15, 80
"""Of tokens that are masked, and passages that are masked at once."""


def stop_share(tokens: Artifact, weights: Artifact | None) -> tuple[float, int]:
    """The share of stop-words and punctuation among masked tokens, and the number of these; weights: ROM's masks."""
    vocabulary = Vocabulary.of((tokens.place / "tokenizer").local())
    passages = Passages(tokens.place, weights.place if weights else None)
    stops = masked = 0
    for start in range(0, passages.count, AT_ONCE):
        read = passages.read(np.arange(start, min(start + AT_ONCE, passages.count)))
        text = padded(read, 0, 0, vocabulary.pad_id)
        chosen_BL = select_highest(text, vocabulary, ratio=RATIO, purpose=Purpose.SELECT, temperature=1.0)
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
        for name, ranked_by in (("uniform", None), ("ROM", weights)):
            share, masked = stop_share(tokens, ranked_by)
            print(f"{name}: {share:.1%} of {masked:,} masked tokens", flush=True)


if __name__ == "__main__":
    main()
