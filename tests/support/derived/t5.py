"""A tiny random T5."""

from pathlib import Path

import torch

from tests.support.derived.documents import WORDS


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
