"""A WordPiece tokenizer of 40 entries, and random models of every supported family that fit it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from midmask.vocabulary import Vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["a", "dog", "cat", "sat", "on", "the", "mat", "red", "blue", "house", "ran", "fast", "."]
PIECES = [f"##{letter}" for letter in "abcdefghijklmnopqrstuv"]
TEXTS = ["the dog sat on the mat .", "a catab ran", "red", "the blue house sat fast on a doge matter . the cat"]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    core = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate([*SPECIALS, *WORDS, *PIECES])}, unk_token="[UNK]")
    )
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=64, **names).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def vocabulary(tokenizer_folder: Path) -> Vocabulary:
    return Vocabulary.of(tokenizer_folder)


def random_model(family: str) -> Any:
    shape = {"vocab_size": 40, "max_position_embeddings": 34, "pad_token_id": 0}
    torch.manual_seed(11)
    if family == "distilbert":
        return DistilBertForMaskedLM(DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, **shape))
    shape |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return BertForMaskedLM(BertConfig(**shape)) if family == "bert" else RobertaForMaskedLM(RobertaConfig(**shape))


@pytest.fixture(params=["bert", "roberta", "distilbert"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model_folder(family: str, tmp_path: Path) -> Path:
    """A folder with a random model of the family, every bias and norm moved off its starting value."""
    model = random_model(family)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / family)
    return tmp_path / family
