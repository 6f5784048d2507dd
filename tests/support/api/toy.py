"""A collection of made-up words in memory, and settings that train a recipe on it within seconds."""

import random
from collections.abc import Mapping

SETTINGS: Mapping[str, object] = {
    "tokens.vocabulary_size": 300,
    "tokens.max_length": 24,
    "tokens.query_length": 12,
    "pretrain.steps": 6,
    "pretrain.batch_size": 8,
    "stages.0.train.steps": 6,
    "stages.0.train.batch_size": 8,
}

DOCUMENTS = 80


def texts() -> list[str]:
    """Documents of 5 to 20 words; no two are alike."""
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 7))) for _ in range(200)]
    return [" ".join(draw.choices(words, k=draw.randint(5, 20))) for _ in range(DOCUMENTS)]


def queries() -> list[str]:
    """Query i holds three words of document i."""
    return [" ".join(text.split()[:3]) for text in texts()]
