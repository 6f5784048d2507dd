"""A WordPiece tokenizer of 40 entries, and folders of random models that fit it."""

from pathlib import Path

import pytest

from midmask.text.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import random_model, write_tokenizer


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), "no pairs", 64)


@pytest.fixture(scope="session")
def vocabulary(tokenizer_folder: Path) -> Vocabulary:
    return Vocabulary.of(tokenizer_folder)


@pytest.fixture(params=["bert", "distilbert"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model_folder(family: str, tmp_path: Path) -> Path:
    random_model(family).save_pretrained(tmp_path / family)
    return tmp_path / family


@pytest.fixture(scope="session")
def base(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked LM with its tokenizer, as found anywhere; to be read."""
    folder = tmp_path_factory.mktemp("base")
    random_model("bert").save_pretrained(folder)
    load_tokenizer(tokenizer_folder).save_pretrained(folder)
    return folder
