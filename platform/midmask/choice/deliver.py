"""The folder of a verdict: verdict.json, verdict.md, verdict.html, model/ and the page of made queries."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from midmask.artifact import Place
from midmask.choice.card import model_card
from midmask.choice.report_html import verdict_html
from midmask.choice.report_text import verdict_markdown
from midmask.choice.verdict import Verdict

MODEL = "model"
QUERIES_PAGE = "queries.html"


def deliver(verdict: Verdict, page: Place, folder: Path) -> Verdict:
    """Writes the folder, and gives the verdict that names it; what an earlier verdict left there is replaced, each part
    whole or not at all.

    Args:
        page: of the made queries, as their step wrote it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    verdict = replace(verdict, folder=str(folder))
    if verdict.model:
        _replace_model(verdict, folder / MODEL)
    texts = {
        QUERIES_PAGE: page.read().decode(),
        "verdict.md": verdict_markdown(verdict),
        "verdict.html": verdict_html(verdict),
        "verdict.json": verdict.as_json(),
    }
    for name, text in texts.items():
        new = folder / f"{name}.new"
        new.write_text(text, "utf-8")
        new.replace(folder / name)
    return verdict


def _replace_model(verdict: Verdict, model: Path) -> None:
    """A copy that stays when the store is cleaned; its card says what the verdict says of it."""
    new, old = (model.with_name(f"{model.name}.{state}") for state in ("new", "old"))
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(verdict.model, new)
    card = new / "README.md"
    card.write_text(model_card(verdict, card.read_text("utf-8") if card.exists() else ""), "utf-8")
    if model.exists():
        os.rename(model, old)
    os.rename(new, model)
    shutil.rmtree(old, ignore_errors=True)
