"""Folders of small cross-encoders, as other tools write them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from tests.support.encoders.tokenizers import write_tokenizer


def write_classifier(folder: Path, labels: int) -> Any:
    write_tokenizer(folder, "bert")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(2)
    config = AutoConfig.for_model("bert", vocab_size=40, num_labels=labels, initializer_range=0.5, **shape)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(folder)
    return model
