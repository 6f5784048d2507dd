"""What is hidden from whom: corrupted inputs and visibility matrices, as tensors, without a loop over tokens."""

from midmask.masking.crops import only, word_runs
from midmask.masking.draws import Purpose, draw_seeds, fingerprints, hashes, integers, rekeyed, row_keys, uniform
from midmask.masking.selection import corrupt, select_highest, select_tokens, select_words
from midmask.masking.visibility import visibility
from midmask.masking.words import WordSpans, find_words, whole_word_masks

__all__ = [
    "Purpose",
    "WordSpans",
    "corrupt",
    "draw_seeds",
    "find_words",
    "fingerprints",
    "hashes",
    "integers",
    "only",
    "rekeyed",
    "row_keys",
    "select_highest",
    "select_tokens",
    "select_words",
    "uniform",
    "visibility",
    "whole_word_masks",
    "word_runs",
]
