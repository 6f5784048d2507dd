"""A tiny random T5."""

from pathlib import Path

import torch

from tests.support.queries.documents import WORDS


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


CHAT = (
    "{% for message in messages %}<user> {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def write_causal(folder: Path, *, chat: bool = False, positions: int = 256) -> None:
    """A Llama of two layers of width 16 and a word-level tokenizer in which a line break is a token."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    entries = ["<pad>", "</s>", "<unk>", "<user>", "<assistant>", "\n", "Query", "Passage", *WORDS]
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(entries)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|[^\s]+"), "removed", invert=True)
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    tokenizer.chat_template = CHAT if chat else None
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None, "max_position_embeddings": positions}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(entries), initializer_range=0.4, **sizes, **special))
    with torch.no_grad():
        model.lm_head.weight[[entries.index("\n"), entries.index("</s>")]] *= 3  # some answers end with either
    model.save_pretrained(folder)
