"""Corrupted inputs and visibility matrices as tensors, computed without a loop over tokens."""

from midmask.masking.corruption import (
    corrupt,
    keep_pairs,
    only,
    select_highest,
    select_tokens,
    select_words,
    visibility,
    word_runs,
)
from midmask.masking.words import WordSpans, find_words, whole_word_masks

__all__ = [
    "WordSpans",
    "corrupt",
    "find_words",
    "keep_pairs",
    "only",
    "select_highest",
    "select_tokens",
    "select_words",
    "visibility",
    "whole_word_masks",
    "word_runs",
]
