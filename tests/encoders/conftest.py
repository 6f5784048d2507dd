"""A WordPiece tokenizer of 40 entries, and random models of every supported family that fit it."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from midmask.vocabulary import Vocabulary
from tests.support.encoders.models import PIECES, SPECIALS, WORDS, random_model


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


@pytest.fixture(params=["bert", "roberta", "distilbert"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model_folder(family: str, tmp_path: Path) -> Path:
    random_model(family).save_pretrained(tmp_path / family)
    return tmp_path / family
