"""Where the bias of a fresh MLM head begins: counts of the passages, against counts made row by row."""

import math
from collections import Counter

import pyarrow.parquet as pq
import pytest
import torch

from midmask.artifact import Place
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING
from midmask.training.examples import PassageExamples
from midmask.training.optimiser import TrainConfig
from midmask.training.setup import PretrainSetup
from midmask.training.unigrams import unigram_log_probabilities
from midmask.vocabulary import Vocabulary, load_tokenizer


def test_shares_are_those_of_the_passages_without_special_tokens(tokens: Place) -> None:
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())
    counts: Counter[int] = Counter()
    for name in (tokens / "passages").names():
        for row in pq.read_table((tokens / "passages" / name).uri)["ids"].to_pylist():
            counts.update(row)
    special = set(vocabulary.special_V.nonzero().flatten().tolist())
    expected = [1 if token in special else 1 + counts[token] for token in range(vocabulary.size)]
    found = unigram_log_probabilities(tokens, vocabulary)
    assert found.dtype == torch.float32 and found.exp().sum().item() == pytest.approx(1, abs=1e-5)
    for token, count in enumerate(expected):
        assert found[token].item() == pytest.approx(math.log(count / sum(expected)), rel=1e-5)


def headless(tokens: Place, folder: Place) -> str:
    """A folder as sentence-transformers has it: an encoder without an MLM head."""
    tokenizer = (tokens / "tokenizer").local()
    backbone = build_backbone(BackboneConfig(), Vocabulary.of(tokenizer), seed=1)
    backbone.encoder.save_pretrained(folder.local())
    load_tokenizer(tokenizer).save_pretrained(folder.local())
    return str(folder.local())


@pytest.mark.parametrize("bias", ["zero", "unigram"])
def test_only_a_head_that_was_missing_begins_with_them(
    bias: str, tokens: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())
    without_head = headless(tokens, Place(str(tmp_path_factory.mktemp("headless"))))
    for name in (without_head, "tiny"):
        setup = PretrainSetup(
            objective=PRETRAINING["mlm"].Config(),
            train=TrainConfig(steps=1, batch_size=2, learning_rate=1e-3),
            backbone=BackboneConfig(name=name, head_bias=bias),
            tokens=tokens,
            rows=PassageExamples(tokens, "tokens"),
        )
        backbone, _, _ = setup.build()
        from_counts = name == without_head and bias == "unigram"
        expected = unigram_log_probabilities(tokens, vocabulary) if from_counts else torch.zeros(vocabulary.size)
        assert torch.equal(backbone.output_bias_V.detach(), expected)
