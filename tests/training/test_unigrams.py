"""Where the bias of a fresh MLM head begins: counts of the passages, against counts made row by row."""

import math
from collections import Counter

import pyarrow.parquet as pq
import pytest
import torch

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING
from midmask.training.examples import PassageExamples
from midmask.training.optimiser import TrainConfig
from midmask.training.setup import PretrainSetup
from midmask.training.unigrams import unigram_log_probabilities
from midmask.vocabulary import Vocabulary, load_tokenizer


def test_shares_are_those_of_the_passages_without_special_tokens(tokens):
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


@pytest.mark.parametrize("bias", ["zero", "unigram"])
def test_only_a_head_that_was_missing_begins_with_them(bias, tokens, tmp_path):
    tokenizer, without_head = (tokens / "tokenizer").local(), str(tmp_path)
    vocabulary = Vocabulary.of(tokenizer)
    build_backbone(BackboneConfig(), vocabulary, seed=1).encoder.save_pretrained(tmp_path)
    load_tokenizer(tokenizer).save_pretrained(tmp_path)
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
