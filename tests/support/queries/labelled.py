"""A small labelled collection, tokenised, for the training of generators."""

from typing import Any

from midmask.encoders.backbone import BackboneConfig
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.queries.query_model import GeneratorConfig
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.training.optimiser import TrainConfig
from tests.support.retrieve.collection import write_parts

PAIRS = {
    "how tall is the red tower": "the red tower by the river has a height of ninety metres",
    "who painted the old bridge": "an unknown painter made the picture of the old bridge",
    "when does the night train leave": "the night train leaves at ten from the second platform",
    "what do grey bears eat": "grey bears live on fish berries and roots in the north",
    "where is salt mined": "salt comes out of the ground in the mountains of the south",
    "why is the sky blue": "air scatters short waves of light more than long ones",
    "which metal melts first": "of the common metals tin melts at the lowest heat",
    "how long do whales sleep": "whales rest for two hours a day near the surface",
}
"""Query -> the passage that it is about."""


def write_labelled(root: Place) -> dict[str, Artifact]:
    """corpus and tokens; all pairs are of split train."""
    queries, texts = list(PAIRS), list(PAIRS.values())
    corpus = write_parts(
        root / "corpus",
        docs=[(f"d{row}", "", text) for row, text in enumerate(texts)],
        queries=[(f"q{row}", text) for row, text in enumerate(queries)],
        qrels=[("train", f"q{row}", f"d{row}", 1) for row in range(len(PAIRS))],
    )
    tokens = root / "tokens"
    result = tokenise(TokensConfig(vocabulary_size=300, max_length=48, query_length=24), {"corpus": corpus}, tokens)
    return {"corpus": corpus, "tokens": Artifact(tokens, {"fingerprint": "tokens", "result": result})}


def generating(*, dropout: float = 0.1, name: str = "tiny", **train: Any) -> GeneratorConfig:
    """A tiny encoder-decoder on batches of 8 queries."""
    wanted = {"steps": 12, "batch_size": 8, "learning_rate": 1e-3, "checkpoint_every": 5, "threads": 1, **train}
    backbone, loss = BackboneConfig(name=name, dropout=dropout), QueryGeneration.Config(decoder_layers=1)
    lengths = {"query_length": 24, "passage_length": 48}
    return GeneratorConfig(backbone=backbone, loss=loss, train=TrainConfig(**wanted), **lengths)
