"""Which spans of a document share a phrase: what Spider draws its pairs from."""

import random
from collections import defaultdict

import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.masking.phrases import LEAST_WORDS, MOST_WORDS, phrases
from midmask.vocabulary import Vocabulary

PARTNERS = 32
"""Other spans that are kept for a span at most; of more, so many are drawn."""


def find_sharing(spans: list[list[int]], vocabulary: Vocabulary, random_: random.Random) -> list[list[int]]:
    """The numbers of the other spans that have a phrase of 2 to 10 words in common with each span, ascending.

    Args:
        spans: token ids of a document's spans, special tokens included.
    """
    partners: list[set[int]] = [set() for _ in spans]
    for members in _spans_by_phrase(spans, vocabulary):
        for number in members:
            partners[number] |= members
    several = [sorted(others - {number}) for number, others in enumerate(partners)]
    return [own if len(own) <= PARTNERS else sorted(random_.sample(own, PARTNERS)) for own in several]


def _spans_by_phrase(spans: list[list[int]], vocabulary: Vocabulary) -> list[set[int]]:
    """The spans that have a phrase, for each phrase of two spans or more."""
    lengths = [len(span) for span in spans]
    width = max(lengths)
    ids_BL = torch.tensor([span + [vocabulary.pad_id] * (width - len(span)) for span in spans])
    text = TokenRows(ids_BL, torch.tensor(lengths), torch.zeros(len(spans), dtype=torch.int64))
    having: defaultdict[int, set[int]] = defaultdict(set)
    for found in phrases(text, vocabulary, range(LEAST_WORDS, MOST_WORDS + 1), width):
        numbers: Tensor = found.valid_BL.nonzero()[:, 0]
        for phrase, number in zip(found.hashes_BL[found.valid_BL].tolist(), numbers.tolist(), strict=True):
            having[phrase].add(number)
    return [members for members in having.values() if len(members) > 1]
