"""Which systems a user means: by name, run, model folder or run file; and where all of them were evaluated."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from midmask.corpora.splits import is_slice
from midmask.errors import UserError, unknown
from midmask.leaderboard.artifacts import artifact_place, artifacts_behind, inputs_of
from midmask.leaderboard.comparison import short_names
from midmask.leaderboard.entries import SEPARATOR, Entry, entries
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, place_names, resolve_cached
from midmask.leaderboard.store_view import StoreView
from midmask.retrieve.run_file import DIGEST_PARAM, run_digest
from midmask.store.place import Place
from midmask.store.pretrained import found_folder

SHORTEST_ID = 4
"""Letters of a run's id from which on a text is looked for among ids."""

Candidate = tuple[str, Entry]
"""What a system is called, where the name on the leaderboard says less than what was typed, else nothing; the system,
with the rows that are meant.
"""


def select_systems(
    texts: Sequence[str], view: StoreView, on: str | None, *, store: str = ""
) -> tuple[CollectionSplit, dict[str, Entry]]:
    """The collection and split that all have in common, and label -> system in the order given; labels are as short as
    tells the systems apart.

    Args:
        texts: of each system its name on the leaderboard or parts of it, a run's id, its beginning or its name, a model
            folder, or a run file.
        on: CORPUS/SPLIT, or a place's name; None: the only one.
        store: the flag by which a command that a message shows uses the same store of runs; empty: it needs none.

    Raises:
        UserError: for a text that means nothing or several systems, two that mean one, and where no place, or more than
            one, is common to all.
    """
    found = {text: list(_candidates(text, view)) for text in texts}
    for text, own in found.items():
        if not own:
            raise _nothing(text, view, store)
    place = _choose_place(found, on)
    chosen = [_choose(text, [one for one in found[text] if place in one[1].rows], place) for text in texts]
    for at, (_, entry) in enumerate(chosen):
        for before, (_, other) in zip(texts, chosen[:at], strict=False):
            if entry.rows[place] == other.rows[place]:
                raise UserError(f"{before!r} and {texts[at]!r} are the same system, {entry.name}; give two that differ")
    return place, _labelled(chosen, place)


def _candidates(text: str, view: StoreView) -> Iterator[Candidate]:
    """The systems that a text may mean, by the first way in which it means any."""
    named = [entry for entry in view.entries if entry.name == text] or [
        entry for entry in view.entries if set(text.split(SEPARATOR)) <= set(entry.name.split(SEPARATOR))
    ]
    if named:
        yield from (("", entry) for entry in named)
    elif runs := _runs_named(text, view):
        for run_id in runs:
            yield from _restricted(view, partial(_is_of_run, run_id))
    elif Path(text).is_file():
        digest = run_digest(text)
        yield from _restricted(view, lambda row: row.params.get(DIGEST_PARAM) == digest)
    elif (folder := found_folder(text)) is not None:
        searched = _evaluations_of(folder.resolve(), view)
        yield from _restricted(view, lambda row: (row.run_id, row.place) in searched, Path(text).name)


def _is_of_run(run_id: str, row: LeaderboardRow) -> bool:
    return row.run_id == run_id


def _restricted(view: StoreView, is_wanted: Callable[[LeaderboardRow], bool], called: str = "") -> Iterator[Candidate]:
    """The systems of the rows that are wanted, also of those that the leaderboard hides behind a newer one."""
    yield from ((called, entry) for entry in entries(filter(is_wanted, view.rows)))


def _runs_named(text: str, view: StoreView) -> list[str]:
    """Ids of the evaluated runs with this name or beginning of an id; of a job's run, those of the runs in it."""
    measured = {row.run_id for row in view.rows}
    is_id = len(text) >= SHORTEST_ID and not set(text) - set("0123456789abcdef")
    known = list(zip(view.runs, resolve_cached(view.runs), strict=True))
    meant = [(run, linked) for run, linked in known if text == run.name or (is_id and run.run_id.startswith(text))]
    own = [linked.run_id for _, linked in meant if linked.run_id in measured]
    parents = {run.run_id for run, _ in meant}
    inside = [linked.run_id for _, linked in known if linked.parent_id in parents and linked.run_id in measured]
    return list(dict.fromkeys(own or inside))


def _evaluations_of(folder: Path, view: StoreView) -> set[tuple[str, CollectionSplit]]:
    """(run, place) of the evaluations that searched with the model in a folder."""
    runs = {run.run_id: run for run in view.runs}
    searched: dict[str, set[Path]] = {}
    found: set[tuple[str, CollectionSplit]] = set()
    for row in view.rows:
        place = artifact_place(runs[row.run_id], row.corpus, row.split)
        if place is not None:
            if place.uri not in searched:
                searched[place.uri] = set(_searched_models(place))
            if folder in searched[place.uri]:
                found.add((row.run_id, row.place))
    return found


def _searched_models(evaluation: Place) -> Iterator[Path]:
    """The folders of the models that an evaluation's vectors were encoded with, and those they were copied from."""
    artifacts = {artifact.address.uri: artifact for artifact in artifacts_behind(evaluation)}
    encodings = [artifact for artifact in artifacts.values() if artifact.record["step"] == "encode"]
    for model in (artifacts.get(inputs_of(encoding)["model"].uri) for encoding in encodings):
        if model is not None and model.place.is_path:
            yield (Path(model.place.uri) / "model").resolve()
        if model is not None and "folder" in model.result:
            yield Path(str(model.result["folder"])).resolve()


def _choose_place(found: Mapping[str, Sequence[Candidate]], on: str | None) -> CollectionSplit:
    """
    Raises:
        UserError: if there is none, or more than one.
    """
    of_each = {text: {place for _, entry in own for place in entry.rows} for text, own in found.items()}
    names = place_names(sorted(set[CollectionSplit]().union(*of_each.values())))
    common = set.intersection(*of_each.values())
    if on is not None:
        wanted = {place for place, name in names.items() if on in (name, f"{place.corpus}/{place.split}")}
        if not wanted:
            raise unknown("place", on, names.values(), hint="Write it as CORPUS/SPLIT, or as it is written here.")
        common &= wanted
    whole = {place for place in common if not is_slice(place.split)}
    choices = sorted(whole or common)
    if not choices:
        said = "; ".join(f"{text!r} on {_listed(own, names)}" for text, own in of_each.items())
        raise UserError(f"there are no queries{f' of {on}' if on else ''} that all were evaluated on: {said}")
    if len(choices) > 1:
        typed = " or ".join(_typed(place, names[place]) for place in choices)
        raise UserError(f"all of them were evaluated on {len(choices)} sets of queries; choose one with {typed}")
    return choices[0]


def _listed(places: Iterable[CollectionSplit], names: Mapping[CollectionSplit, str]) -> str:
    return ", ".join(names[place] for place in sorted(places))


def _typed(place: CollectionSplit, name: str) -> str:
    """The flag that chooses a place: by its name, where others share collection and split."""
    return f"--on {place.corpus}/{place.split}" if name == f"{place.corpus} {place.split}" else f"--on '{name}'"


def _choose(text: str, found: Sequence[Candidate], place: CollectionSplit) -> Candidate:
    """The one system at a place; a sweep's trial only where there is nothing else."""
    choices = [one for one in found if not one[1].trial] or list(found)
    if len(choices) > 1:
        listed = "; ".join(f"'{entry.name}' ({_run_ids(entry, place)})" for _, entry in choices)
        raise UserError(f"{text!r} means {len(choices)} systems there; give one's name or run: {listed}")
    return choices[0]


def _run_ids(entry: Entry, place: CollectionSplit) -> str:
    return ", ".join(row.run_id[:8] for row in entry.rows[place])


def _nothing(text: str, view: StoreView, store: str) -> UserError:
    typed = shlex.join([text, *shlex.split(store)])
    if Path(text).is_file():
        return UserError(
            f"{text}: this run file is not on the leaderboard; measure it first: midmask evaluate-run {typed} --corpus "
            "NAME"
        )
    if Path(text).is_dir():
        return UserError(
            f"{text}: no tracked evaluation leads to this folder; give the id of its run, or evaluate it: midmask "
            f"evaluate --model {typed} --corpus NAME"
        )
    if not view.entries:
        return UserError("nothing has been evaluated in this tracking store; name another with --tracking-uri")
    names = {name for entry in view.entries for name in (entry.name, entry.recipe)}
    return unknown("system or run", text, names, hint="Or give a run's id, or a run file.")


def _labelled(chosen: Sequence[Candidate], place: CollectionSplit) -> dict[str, Entry]:
    """Label -> system: what it is called, else its short name, with its runs where two labels are alike."""
    short = {id(entry): name for name, entry in short_names([entry for _, entry in chosen]).items()}
    labels = [called or short.get(id(entry), entry.name) for called, entry in chosen]
    counts = Counter(labels)
    return {
        label if counts[label] == 1 else f"{label}{SEPARATOR}{_run_ids(entry, place)}": entry
        for label, (_, entry) in zip(labels, chosen, strict=True)
    }
