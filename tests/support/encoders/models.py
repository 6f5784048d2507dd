"""A vocabulary of 40 entries, and random models of every supported family that fit it; is bf16 native here; a tokenizer
with the pair template of a family; folders of small cross-encoders, as other tools write them.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from midmask.encoders.families import FAMILIES

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["a", "dog", "cat", "sat", "on", "the", "mat", "red", "blue", "house", "ran", "fast", "."]
PIECES = [f"##{letter}" for letter in "abcdefghijklmnopqrstuv"]
TEXTS = ["the dog sat on the mat .", "a catab ran", "red", "the blue house sat fast on a doge matter . the cat"]
RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "deberta": RELATIVE,
    "deberta, published head": {**RELATIVE, "legacy": False},
    "deberta, with positions and narrow words": {"type_vocab_size": 2, "embedding_size": 16},
    "deberta-v2": {**RELATIVE, "position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    "deberta-v2, published head, convolution": {**RELATIVE, "legacy": False, "conv_kernel_size": 3},
    "modernbert": {"num_hidden_layers": 4, "local_attention": 4, "norm_bias": True},
    "modernbert, no output bias": {"num_hidden_layers": 4, "local_attention": 4, "decoder_bias": False},
    "electra": {"embedding_size": 32},
    "electra, narrow words": {"embedding_size": 16},
}
"""Name -> how its config differs from that of two layers of width 32; the first word is the family."""


def random_model(variant: str) -> Any:
    """A model of 40 tokens and 34 positions, every bias and norm moved off its starting value."""
    shape = {"vocab_size": 40, "max_position_embeddings": 34, "pad_token_id": 0}
    shape |= {"cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    if not variant.startswith("distilbert"):
        shape |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    family = variant.partition(",")[0]
    dropouts = dict.fromkeys(FAMILIES[family].dropouts, 0.1)
    config = AutoConfig.for_model(family, **{**shape, **dropouts, **VARIANTS[variant]})
    torch.manual_seed(11)
    model = AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def has_bf16() -> bool:
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    return bool({"avx512_bf16", "amx_bf16"} & set(flags)) and not torch.cuda.is_available()


needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="this processor has no bf16 products")


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
