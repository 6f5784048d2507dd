"""What a choice is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.benchmark.design import NONE, variant
from midmask.benchmark.layout import recipe_of
from midmask.choice.contenders import SCORED, SYSTEMS, UNTRAINED, Size, contest
from midmask.corpora import CorpusConfig
from midmask.encoders.cross_encoder import read_cross_encoder
from midmask.errors import unknown
from midmask.experiment.schema import Recipe
from midmask.identity import fingerprint, override
from midmask.pretrained import PRETRAINED, found_folder
from midmask.queries.config import QueriesConfig
from midmask.recipes import RECIPES

QUERIES = "queries."
"""What the path of a field of `QueriesConfig` begins with, among the changes of a request."""


def default_backbone() -> str:
    """`minilm` where its package is installed, else `tiny`."""
    return next((name for name in PRETRAINED if found_folder(name)), "tiny")


def teacher_folder(given: str | Path | None) -> str | None:
    """The absolute path of a cross-encoder's folder.

    Raises:
        UserError: if there is no cross-encoder in it. Found out before a contest has spent half its budget.
    """
    if given is None:
        return None
    folder = Path(given).expanduser().absolute()
    read_cross_encoder(folder)
    return str(folder)


def queries_as_asked(queries: QueriesConfig, changes: Mapping[str, Any]) -> tuple[QueriesConfig, dict[str, Any]]:
    """How queries are made with those of the changes that are of `queries`, and the other changes.

    Raises:
        UserError: for an unknown field of `queries`, or an impossible value.
    """
    own = {path: value for path, value in changes.items() if path.startswith(QUERIES)}
    others = {path: value for path, value in changes.items() if path not in own}
    return override(queries, {path.removeprefix(QUERIES): value for path, value in own.items()}), others


@dataclass(frozen=True)
class Request:
    """Documents, a budget, and what takes part.

    corpus: the documents; judgements that it may have are not looked at unless `reveal`. budget: in seconds. teacher: a
    cross-encoder's folder. changes: dotted path -> value, for the reading of the corpus and for all systems. out: the
    verdict's folder. command: what makes the verdict again, for its pages.
    """

    corpus: CorpusConfig
    budget: float
    out: Path
    queries: QueriesConfig
    teacher: str | None = None
    systems: tuple[str, ...] = SYSTEMS
    representations: tuple[str, ...] = tuple(SCORED)
    changes: Mapping[str, Any] | None = None
    seed: int = 0
    reveal: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for kind in self.representations:
            if kind not in SCORED:
                raise unknown("representation", kind, SCORED)
        for system in self.systems:
            RECIPES[variant(system)[0]]

    @property
    def backbone(self) -> str:
        return str((self.changes or {}).get("backbone.name") or default_backbone())

    @property
    def own_changes(self) -> dict[str, Any]:
        """What all systems of the contest have."""
        given = {path: value for path, value in (self.changes or {}).items() if not path.startswith("corpus.")}
        return {"backbone.name": self.backbone, **given}

    @cached_property
    def documents(self) -> Recipe:
        """A recipe on the documents themselves, in the splits of their files."""
        reading = {path: value for path, value in (self.changes or {}).items() if path.startswith("corpus.")}
        corpus = {**self.corpus.model_dump(), "splits": "official"}
        return override(override(RECIPES["none"](), {"corpus": corpus}), reading)

    @cached_property
    def as_read(self) -> Recipe:
        """The same, as the encoder that all systems start from reads the documents."""
        made = contest(self.corpus.name, (NONE,), Size(1, 1), ("dev",), self.own_changes, self.seed)
        return override(recipe_of(made, UNTRAINED.keys[0]), {"corpus": self.documents.corpus.model_dump()})

    @property
    def short_name(self) -> str:
        """Of the documents, in tables and folders."""
        return self.documents.corpus.short_name

    @cached_property
    def identity(self) -> str:
        """What the decisions of the contest depend on."""
        made = contest("made", self.systems, Size(1, 1), ("dev",), self.own_changes, self.seed, self.teacher)
        wanted = [self.documents.corpus.model_dump(), self.queries.model_dump(), made.model_dump(), self.budget]
        return fingerprint({"choose": wanted, "representations": self.representations})
