"""What a number came from: the records of all steps behind an artifact, read from where they lie.

A record names the places of its inputs, so the way back needs neither a plan nor the code of that time. Artifacts may
have been deleted since (encodings usually are), or lie on another machine: such a step is still named, with the reason
why no more is known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midmask.errors import UserError
from midmask.store.artifact import Artifact, load
from midmask.store.digests import RECORD
from midmask.store.place import Place
from midmask.tracking.names import ARTIFACT, artifact_key
from midmask.tracking.reading import TrackedRow

COMMITS = ("midmask.commit", "mlflow.source.git.commit")
"""Tags that tell the commit of the code, the first that a run bears."""

TOLD: Mapping[str, tuple[str, ...]] = {
    "prepare": ("name", "splits", "max_passages"),
    "tokenise": ("tokenizer", "vocabulary_size", "max_length"),
    "pretrain": ("objective.name", "backbone.name", "train.steps", "train.batch_size", "train.seed"),
    "finetune": ("loss.name", "train.steps", "train.batch_size", "per_query", "train.seed"),
    "teach": ("backbone.name", "train.steps", "train.batch_size", "train.seed"),
    "generator": ("backbone.name", "loss.decoder_layers", "train.steps", "train.batch_size", "train.seed"),
    "mine": ("split", "depth", "min_rank", "max_rank", "per_query", "seed"),
    "encode": ("side", "split", "length", "terms"),
    "index": ("index", "ef_construction"),
    "sample": ("queries",),
    "search_sample": ("depth", "views"),
    "time_searches": ("rounds",),
    "search": ("index", "nprobe", "ef_search", "rescore", "depth", "views"),
    "bm25_words": ("titles",),
    "bm25_index": ("k1", "b"),
    "bm25": ("k1", "b", "depth"),
    "fuse": ("bm25_share", "fusion"),
    "read_run": ("file", "split", "ties", "leave_out_copies"),
    "evaluate": ("split", "depth"),
}
"""Step -> the fields of its config that say most; those that it has are told."""

_COLOURS = {**dict.fromkeys(("pretrain", "finetune", "teach", "generator"), "#ea580c"), "evaluate": "#6366f1"}
"""Step -> the colour of its box: trainings, and what was measured; all else has one colour."""

LONGEST_LABEL = 24
"""Characters of a setting in a box."""

SIZES = ("passages", "queries", "rows", "steps", "tokens", "bytes")
"""Entries of a record's result that say how much was made."""


@dataclass(frozen=True)
class Link:
    """One step behind a number: an artifact, its inputs and its record."""

    step: str
    fingerprint: str
    place: Place
    inputs: Mapping[str, Place] = field(default_factory=dict)  # role -> place of the input artifact
    record: Mapping[str, Any] = field(default_factory=dict)  # written at the step's end; empty if it cannot be read
    missing: str = ""  # why the record cannot be read; empty if it was read
    size: int | None = None  # bytes of its files; None where finding out takes a walk over a network

    @property
    def seconds(self) -> float | None:
        seconds = self.result.get("seconds")
        return None if seconds is None else float(seconds)

    @property
    def result(self) -> Mapping[str, Any]:
        return dict(self.record.get("result", {}))

    @property
    def counts(self) -> dict[str, int]:
        """The amounts that the step produced, by kind (such as passages or tokens)."""
        return {name: int(self.result[name]) for name in SIZES if isinstance(self.result.get(name), int | float)}

    @property
    def told(self) -> dict[str, Any]:
        """The settings that say most of the step; those that are none are left out."""
        config = self.record.get("config", {})
        values = {path: _at(config, path) for path in TOLD.get(self.step, ())}
        return {path: value for path, value in values.items() if value is not None}


def artifact_place(run: TrackedRow, corpus: str, split: str) -> Place | None:
    """The place of a run's evaluation on a corpus and split; None if the run does not name it."""
    place = run.tags.get(artifact_key(corpus, split)) or run.tags.get(ARTIFACT)
    return Place(place) if place else None


def artifact_of(place: Place) -> tuple[Artifact | None, str]:
    """The artifact with its record, or None and why it cannot be read from here."""
    try:
        if not (place / RECORD).exists():
            return None, "nothing is there: it was deleted, or lies on another machine"
        return load(place), ""
    except (OSError, ValueError, UserError) as error:
        return None, " ".join(str(error).split())


def lineage(place: Place) -> list[Link]:
    """Every step behind the artifact at `place`, itself last, each once, each after what it was made of."""
    links: dict[str, Link] = {}

    def walk(one: Place) -> None:
        if one.uri in links:
            return
        link = _link(one)
        for source in link.inputs.values():
            walk(source)
        links[one.uri] = link

    walk(place)
    return list(links.values())


def commit_of(run: TrackedRow) -> str:
    """The commit that the run was made with, empty if it does not tell."""
    return next((run.tags[name] for name in COMMITS if run.tags.get(name)), "")


def input_of(links: Sequence[Link], role: str) -> Link | None:
    """The input of the last of these steps in this role."""
    place = links[-1].inputs.get(role)
    return next((link for link in links if place is not None and link.place == place), None)


def as_dot(links: Sequence[Link]) -> str:
    """The steps as a graph in the DOT language, arrows in the direction of the work; dashed: not reachable. Colours can
    be seen on a light and on a dark ground; the page sets that of the text.
    """
    numbers = {link.place.uri: number for number, link in enumerate(links)}
    return "\n".join(["digraph lineage {", *_header(), *_nodes(links), *_edges(links, numbers), "}"])


def _header() -> Iterator[str]:
    yield 'rankdir=TB; bgcolor="transparent"; nodesep=0.25; ranksep=0.35;'
    yield 'node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=12, margin="0.12,0.06"];'
    yield 'edge [color="#94a3b8", fontname="sans-serif", fontsize=10];'


def _nodes(links: Sequence[Link]) -> Iterator[str]:
    for number, link in enumerate(links):
        colour = _COLOURS.get(link.step, "#0d9488")
        look = f'color="{colour}", fillcolor="{colour}22"'
        style = ', style="rounded,dashed", fillcolor="none"' if link.missing else ""
        label = "\\n".join(map(_quoted, filter(None, (link.step, _setting(link), link.fingerprint[:8]))))
        yield f'n{number} [label="{label}", {look}{style}];'


def _setting(link: Link) -> str:
    """The setting that says most of a step, short: a number with its name, a path by its end; else empty."""
    for path, value in link.told.items():
        text = value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else f"{path.rpartition('.')[2]} {value}"
        return text if len(text) <= LONGEST_LABEL else f"{text[:LONGEST_LABEL]}…"
    return ""


def _edges(links: Sequence[Link], numbers: Mapping[str, int]) -> Iterator[str]:
    for number, link in enumerate(links):
        for role, source in link.inputs.items():
            yield f'n{numbers[source.uri]} -> n{number} [label="{_quoted(role)}"];'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _link(place: Place) -> Link:
    artifact, missing = artifact_of(place)
    *_, step, fingerprint = ["", *place.uri.rstrip("/").split("/")][-2:]
    if artifact is None:
        return Link(step, fingerprint, place, missing=missing)
    record = artifact.record
    inputs = {role: Place(str(uri)) for role, uri in record.get("inputs", {}).items()}
    size = artifact.place.size() if place.is_path else None
    return Link(str(record.get("step", step)), artifact.fingerprint, place, inputs, record, size=size)


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config
