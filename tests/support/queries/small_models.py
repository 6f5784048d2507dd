"""Tiny random models that write queries, and a small labelled collection, tokenised, for the training of generators."""

from pathlib import Path
from typing import Any

import torch

from midmask.encoders.backbone import BackboneConfig
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.queries.query_model import GeneratorConfig
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.training.optimiser import TrainConfig
from tests.support.queries.documents import WORDS
from tests.support.retrieve.collection import write_parts


def write_t5(folder: Path) -> None:
    """Two layers of width 16 and a word-level tokenizer; weights so large that its tokens have unequal chances."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    entries = ["<pad>", "</s>", "<unk>", *WORDS]
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(entries)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(entries), "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = T5Config(**sizes, initializer_factor=2.0, decoder_start_token_id=0)
    T5ForConditionalGeneration(config).save_pretrained(folder)


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
