"""A tokenizer with the pair template of a family; folders of small cross-encoders, as other tools write them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from tests.support.encoders.models import PIECES, SPECIALS, WORDS

LONGEST = 24
TEMPLATES = {
    "no pairs": ("[CLS] $A [SEP]", None),
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
    "two ends": ("[CLS] $A [MASK] [SEP]", "[CLS] $A [MASK] [SEP] [CLS] $B:1 [MASK]:1 [SEP]:1"),
}


def write_tokenizer(folder: Path, template: str, longest: int = 512) -> Path:
    pieces = {token: number for number, token in enumerate([*SPECIALS, *WORDS, *PIECES])}
    core = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = TEMPLATES[template]
    specials = [(name, pieces[name]) for name in ("[CLS]", "[SEP]", "[MASK]")]
    core.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=longest, **names).save_pretrained(folder)
    return folder


def write_classifier(folder: Path, labels: int) -> Any:
    write_tokenizer(folder, "bert")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(2)
    config = AutoConfig.for_model("bert", vocab_size=40, num_labels=labels, initializer_range=0.5, **shape)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(folder)
    return model
