"""The end of a job's output: its three lines of Python are run as printed, on folders that midmask has written."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModelForSequenceClassification

from midmask.app.ending import ending, model_product
from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.artifact import Place
from midmask.encoders.backbone import Backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.representation import Representation
from midmask.pretrained import model_folder
from midmask.vocabulary import Vocabulary, load_tokenizer
from tests.support.encoders.models import random_model
from tests.support.encoders.tokenizers import write_tokenizer

TEXTS = ["a query", "a passage", "another one"]
"""Those of the printed lines."""


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path / "tokenizer", "bert")


@pytest.fixture
def options(tmp_path: Path) -> Options:
    stores = ["--storage", str(tmp_path / "store"), "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    return resolve(parse(stores, None))


def ran(text: str) -> dict[str, Any]:
    """The names that the indented lines of an ending define, and the value of the last line as `found`."""
    *lines, last = re.findall(r"^    (.*)$", text, re.MULTILINE)
    names: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {last}"]), names)
    return names


@pytest.mark.parametrize("view", ["dense", "lexical"])
def test_the_lines_load_a_bi_encoder_and_compare_texts(
    view: str, tokenizer_folder: Path, tmp_path: Path, options: Options
) -> None:
    """Reference: the views as midmask computes them, multiplied in float64."""
    representation = Representation() if view == "dense" else Representation(dense=None, lexical="splade")
    backbone = Backbone(random_model("bert"), dropout=0.0).eval()
    backbone.represent_as(representation, seed=3)
    folder = tmp_path / "it's a model"
    save_bi_encoder(backbone, folder, tokenizer_folder, max_length=12)
    found = ran(ending(options, "It is good.", (), model_product(Place(str(folder)))))["found"]

    tokens = load_tokenizer(tokenizer_folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        lengths, special = tokens["attention_mask"].sum(1), Vocabulary.of(tokenizer_folder).special_V
        views = backbone.pooling(backbone, tokens["input_ids"], lengths, special, "passage")
    vectors = (views.dense_BD if view == "dense" else views.lexical_BV).double().numpy()
    np.testing.assert_allclose(found.numpy(), vectors[:1] @ vectors[1:].T, rtol=2e-4)


def test_the_lines_load_a_folder_of_an_older_sentence_transformers(options: Options) -> None:
    """MiniLM's settings name no class."""
    folder = model_folder("minilm")
    found = ran(ending(options, "It is good.", (), model_product(Place(str(folder)))))["found"]
    vectors = SentenceTransformer(str(folder)).encode(TEXTS).astype(np.float64)
    np.testing.assert_allclose(found.numpy(), vectors[:1] @ vectors[1:].T, rtol=2e-4)


def test_the_lines_load_a_teacher_and_an_encoder(tokenizer_folder: Path, tmp_path: Path, options: Options) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    config = AutoConfig.for_model("bert", hidden_size=8, num_attention_heads=2, intermediate_size=8, num_labels=1)
    teacher, encoder = tmp_path / "teacher", tmp_path / "encoder"
    for folder, model in (
        (teacher, AutoModelForSequenceClassification.from_config(config)),
        (encoder, random_model("bert")),
    ):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    names = ran(ending(options, "It is trained.", (), model_product(Place(str(teacher)), "teacher")))
    assert names["found"].shape == (1,)
    lines = model_product(Place(str(encoder))).loading
    names = {}
    exec("\n".join(lines), names)
    assert len(lines) == 3 and names["model"].config.model_type == "bert"
    assert names["tokenizer"]("a query")["input_ids"] == tokenizer("a query")["input_ids"]
