"""The model card: YAML that is read back, figures of the verdict, and lines that load the model from its folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from midmask.choice.card import model_card
from midmask.choice.side_by_side import SideBySide
from midmask.choice.verdict import Recommendation, Verdict
from midmask.encoders.backbone import Backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.model_card import Card
from midmask.encoders.representation import Representation
from tests.support.choice import searched
from tests.support.encoders.models import random_model
from tests.support.encoders.tokenizers import write_tokenizer
from tests.support.verdicts import HOSTILE, verdict


def python(card: str) -> list[str]:
    """The lines of each block: how to search with the system, and how to load its encoder."""
    return [block.split("```")[0] for block in card.split("```python\n")[1:]]


def recommending(system: str, representation: str) -> Verdict:
    return replace(verdict(), recommendation=Recommendation(system, representation, True, "A reason."))


def test_it_has_the_models_figures_and_no_markup_of_others() -> None:
    card = model_card(verdict())
    assert "| 1    | **retromae** |          dense | +0.065 [+0.036, +0.093] | +0.043 [+0.024, +0.062] |" in card
    assert "| 4    |         none |" in card and "dupmae" not in card, "the model's own line and the baseline's"
    assert "<script" not in card and "&lt;script&gt;" in card
    assert yaml.safe_load(card.split("---\n", 2)[1])["library_name"] == "sentence-transformers"
    assert "trained on docs:handbook" in card
    untrained = tuple(replace(each, training="none") for each in verdict().systems)
    assert ", trained on docs" not in model_card(replace(verdict(), systems=untrained))


def test_its_lines_search_with_the_system_that_the_figures_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a verdict's folder whose best system is joined with BM25, from the model's folder, which lies in it."""
    folder = searched.write_verdict(tmp_path / "verdict")
    joined = searched.system("as it is", "dense with BM25", 1, 0.8, 0.1, "models/dense/model")
    chosen = Recommendation("as it is", "dense with BM25", True, "")
    one = searched.verdict(systems=(joined, *searched.verdict().systems), recommendation=chosen)
    (folder / "verdict.json").write_text(one.as_json())
    card = model_card(one)
    monkeypatch.chdir(folder / "models")
    *lines, last = python(card)[0].strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {last}"]), names)
    opened = SideBySide(folder)
    assert [hit.doc_id for hit in names["found"]] == list(opened.rank(joined.label, "a query").doc_ids[:10])
    assert "BM25" in opened.rank(joined.label, "a query").how
    assert names["verdict"].recommended == joined.label


@pytest.mark.parametrize(
    ("system", "name", "representation"),
    [("retromae", "dense", Representation()), ("lexmae", "splade", Representation(dense=None, lexical="splade"))],
)
def test_its_lines_load_the_model_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, name: str, representation: Representation
) -> None:
    backbone = Backbone(random_model("bert"), dropout=0.0).eval()
    backbone.represent_as(representation, seed=3)
    folder = tmp_path / "model"
    tokenizer = write_tokenizer(tmp_path / "tokenizer", "bert")
    save_bi_encoder(backbone, folder, tokenizer, max_length=12, card=Card("c0ffee", {"recipe": HOSTILE}))
    card = model_card(recommending(system, name), (folder / "README.md").read_text("utf-8"))
    (folder / "README.md").write_text(card, "utf-8")
    assert "- fingerprint: `c0ffee`" in card and "the same vectors" in card
    monkeypatch.chdir(folder)
    *lines, last = python(card)[-1].strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join([*lines, f"found = {last}"]), names)
    assert tuple(names["found"].shape) == (1, 2)  # type: ignore[attr-defined]
    assert json.loads((folder / "config_sentence_transformers.json").read_text())["model_type"] in lines[0]
