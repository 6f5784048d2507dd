"""Documents of made-up words about a few topics, and contests between systems that train within seconds."""

import random
from collections.abc import Mapping
from pathlib import Path

import midmask
from midmask.choice.contenders import contest
from midmask.choice.contest import LocalWorkshop
from midmask.choice.contest_terms import Conditions, Limits
from midmask.choice.traces import Sample
from midmask.corpora.config import CorpusConfig
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place
from tests.support.benchmark.tiny import write_collection

COUNT = 90
SYSTEMS = ("none", "mlm")
SOURCES = {"sentences": 1.0, "titles": 1.0}
SETTINGS: Mapping[str, object] = {
    "backbone.name": "tiny", "tokens.vocabulary_size": 400, "tokens.max_length": 48, "tokens.query_length": 16,
    "pretrain.steps": 3, "pretrain.batch_size": 8, "stages.*.train.steps": 3, "stages.*.train.batch_size": 8,
}  # fmt: skip


def _words(draw: random.Random, count: int) -> list[str]:
    return ["".join(draw.choices("abcdefghijklmnoprstu", k=draw.randint(3, 8))) for _ in range(count)]


def documents() -> tuple[list[str], list[str]]:
    """(titles, texts): each text of six sentences of 8 to 14 words, half of them of the document's own."""
    draw = random.Random(11)
    common = _words(draw, 300)
    titles, texts = [], []
    for _ in range(COUNT):
        own = _words(draw, 20)
        titles.append(" ".join(own[:3]))
        sentences = [draw.choices(own, k=4) + draw.choices(common, k=draw.randint(4, 10)) for _ in range(6)]
        texts.append(" ".join(" ".join(words).capitalize() + "." for words in sentences))
    return titles, texts


def judged() -> tuple[list[str], list[int]]:
    """(queries, number of the document that answers each): three words of the document's text."""
    _, texts = documents()
    draw = random.Random(12)
    numbers = list(range(0, COUNT, 2))
    return [" ".join(draw.sample(texts[number].lower().replace(".", "").split(), 3)) for number in numbers], numbers


def ask(folder: Path, **more: object) -> midmask.Verdict:
    """A whole choice among two systems on the documents, its verdict and store in the folder."""
    titles, texts = documents()
    corpus = midmask.Corpus.from_texts(texts, titles=titles, name="papers")
    settings = {"queries.sources": SOURCES, **SETTINGS}
    given = {"systems": SYSTEMS, "representations": ("dense",), "settings": settings}
    return midmask.choose(
        corpus, budget="20m", **{**given, **more}, out=folder / "verdict", storage=folder / "store", progress=False
    )


CHANGES = {path: value for path, value in SETTINGS.items() if "steps" not in path}


def conditions_in(folder: Path) -> Conditions:
    """Of a collection, and of another one that is its sample."""
    whole, part = write_collection(folder / "whole"), write_collection(folder / "part")
    fixed = {"seed": 0, "limits": Limits(48, 24), "representations": ("dense",), "survey": Survey()}
    return Conditions(
        make=lambda size, splits: contest(whole, ["none", "mlm"], size, splits, CHANGES, 0),
        sample=lambda split: Sample(CorpusConfig(name=part, splits="official"), 48),
        **fixed,
    )


def workshop(folder: Path) -> LocalWorkshop:
    return LocalWorkshop(Runner(Place(str(folder / "store")), LOCAL))
