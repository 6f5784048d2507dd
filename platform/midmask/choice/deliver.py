"""The folder of a verdict: verdict.json, verdict.md, verdict.html, model/, collection/ and the page of made queries."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from midmask.artifact import Place
from midmask.choice.card import model_card
from midmask.choice.report_html import verdict_html
from midmask.choice.report_text import verdict_markdown
from midmask.choice.run import Made
from midmask.choice.traces import queries_of, relevant_of
from midmask.choice.verdict import Verdict
from midmask.queries.collection import read_passages, write_collection
from midmask.queries.preview import queries_page

MODEL = "model"
COLLECTION = "collection"
QUERIES_PAGE = "queries.html"


def deliver(verdict: Verdict, made: Made, folder: Path) -> Verdict:
    """Writes the folder, and gives the verdict that names what is in it: the model, and the documents' passages as they
    are, with the made queries. What an earlier verdict left there is replaced, each part whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = ""
    if verdict.model:
        model = str(folder / MODEL)
        _replace(folder / MODEL, partial(_write_model, verdict))
    _replace(folder / COLLECTION, partial(_write_collection, made))
    verdict = replace(verdict, folder=str(folder), model=model, collection=str(folder / COLLECTION))
    texts = {
        QUERIES_PAGE: queries_page(made.artifact),
        "verdict.md": verdict_markdown(verdict),
        "verdict.html": verdict_html(verdict),
        "verdict.json": verdict.as_json(),
    }
    for name, text in texts.items():
        Place(str(folder / name)).write(text.encode())
    return verdict


def _replace(target: Path, write: Callable[[Path], None]) -> None:
    new, old = (target.with_name(f"{target.name}.{state}") for state in ("new", "old"))
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    write(new)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _write_model(verdict: Verdict, folder: Path) -> None:
    """A copy that stays when the store is cleaned; its card says what the verdict says of it."""
    shutil.copytree(verdict.model, folder)
    card = folder / "README.md"
    card.write_text(model_card(verdict, card.read_text("utf-8") if card.exists() else ""), "utf-8")


def _write_collection(made: Made, folder: Path) -> None:
    """People search the passages as they are, not as the contest did, without what its queries were taken from."""
    asked = queries_of(made.collection)
    rows = [
        (query, one["text"], *(one["metadata"][name] for name in ("source", "document")))
        for query, one in asked.items()
    ]
    pairs = {
        split: [(query, passage) for query, own in relevant_of(made.collection, split).items() for passage in own]
        for split in ("train", "dev", "test")
    }
    passages = (passage for some in read_passages(made.prepared.place) for passage in some)
    write_collection(Place(str(folder)), passages, rows, pairs)
