"""Which systems a user means, by name or run; and where all of them were evaluated."""

from collections import Counter
from collections.abc import Mapping, Sequence

from midmask.corpora.splits import is_slice
from midmask.errors import UserError, unknown
from midmask.leaderboard.comparison import short_names
from midmask.leaderboard.entries import SEPARATOR, Entry, entries
from midmask.leaderboard.rows import CollectionSplit, place_names, resolve_cached
from midmask.leaderboard.store_view import StoreView

SHORTEST_ID = 4
"""Letters of a run's id from which on a text is looked for among ids."""


def select_systems(texts: Sequence[str], view: StoreView, on: str | None) -> tuple[CollectionSplit, dict[str, Entry]]:
    """The collection and split that all have in common, and label -> system in the order given; labels are as short as
    tells the systems apart.

    Args:
        texts: of each system its name on the leaderboard or parts of it, or a run's id, its beginning or its name.
        on: CORPUS/SPLIT, or a place's name; None: the only one.

    Raises:
        UserError: for a text that means nothing or several systems, two that mean one, and where no place, or more than
            one, is common to all.
    """
    candidates = {text: _candidates(text, view) for text in texts}
    place = _choose_place(candidates, on)
    chosen: dict[str, Entry] = {}
    for text in texts:
        entry = _choose(text, [entry for entry in candidates[text] if place in entry.rows], place)
        for before, other in chosen.items():
            if entry.rows[place] == other.rows[place]:
                raise UserError(f"{before!r} and {text!r} are the same system, {entry.name}; give two that differ")
        chosen[text] = entry
    return place, _labelled(list(chosen.values()), place)


def _candidates(text: str, view: StoreView) -> list[Entry]:
    """The systems with this name, else with these parts of a name, else those of runs, which may be hidden on the
    leaderboard by newer ones of the same seed.

    Raises:
        UserError: if there is none.
    """
    parts = set(text.split(SEPARATOR))
    named = [entry for entry in view.entries if entry.name == text]
    named = named or [entry for entry in view.entries if parts <= set(entry.name.split(SEPARATOR))]
    of_runs = [
        entry
        for run_id in ([] if named else _runs_named(text, view))
        for entry in entries(row for row in view.rows if row.run.run_id == run_id)
    ]
    if not view.entries:
        raise UserError("nothing has been evaluated in this tracking store; name another with --tracking-uri")
    if not named and not of_runs:
        names = {name for entry in view.entries for name in (entry.name, entry.recipe)}
        raise unknown("system or run", text, names, hint="Or give a run's id.")
    return named or of_runs


def _runs_named(text: str, view: StoreView) -> list[str]:
    """Ids of the evaluated runs with this name or beginning of an id; of a job's run, those of the runs in it."""
    measured = {row.run.run_id for row in view.rows}
    is_id = len(text) >= SHORTEST_ID and not set(text) - set("0123456789abcdef")
    known = list(zip(view.runs, resolve_cached(view.runs), strict=True))
    meant = [(run, linked) for run, linked in known if text == run.name or (is_id and run.run_id.startswith(text))]
    themselves = [linked.run_id for _, linked in meant if linked.run_id in measured]
    parents = {run.run_id for run, _ in meant}
    inside = [linked.run_id for _, linked in known if linked.parent_id in parents and linked.run_id in measured]
    return list(dict.fromkeys(themselves or inside))


def _choose_place(candidates: Mapping[str, Sequence[Entry]], on: str | None) -> CollectionSplit:
    """
    Raises:
        UserError: if there is none, or more than one.
    """
    of_each = {text: {place for entry in meant for place in entry.rows} for text, meant in candidates.items()}
    names = place_names(sorted(set[CollectionSplit]().union(*of_each.values())))
    common = set.intersection(*of_each.values())
    if on is not None:
        matching = {place for place, name in names.items() if on in (name, f"{place.corpus}/{place.split}")}
        if not matching:
            raise unknown("place", on, names.values(), hint="Write it as CORPUS/SPLIT, or as it is written here.")
        common &= matching
    whole = {place for place in common if not is_slice(place.split)}
    choices = sorted(whole or common)
    if not choices:
        listed = {text: ", ".join(names[place] for place in sorted(places)) for text, places in of_each.items()}
        summary = "; ".join(f"{text!r} on {places}" for text, places in listed.items())
        raise UserError(f"there are no queries{f' of {on}' if on else ''} that all were evaluated on: {summary}")
    if len(choices) > 1:
        typed = " or ".join(_typed(place, names[place]) for place in choices)
        raise UserError(f"all of them were evaluated on {len(choices)} sets of queries; choose one with {typed}")
    return choices[0]


def _typed(place: CollectionSplit, name: str) -> str:
    """The flag that chooses a place: by its name, where others share collection and split."""
    return f"--on {place.corpus}/{place.split}" if name == f"{place.corpus} {place.split}" else f"--on '{name}'"


def _choose(text: str, meant: Sequence[Entry], place: CollectionSplit) -> Entry:
    """The one system at a place; a sweep's trial only where there is nothing else."""
    choices = [entry for entry in meant if not entry.trial] or list(meant)
    if len(choices) > 1:
        listed = "; ".join(f"'{entry.name}' ({_run_ids(entry, place)})" for entry in choices)
        raise UserError(f"{text!r} means {len(choices)} systems there; give one's name or run: {listed}")
    return choices[0]


def _run_ids(entry: Entry, place: CollectionSplit) -> str:
    return ", ".join(row.run.run_id[:8] for row in entry.rows[place])


def _labelled(chosen: Sequence[Entry], place: CollectionSplit) -> dict[str, Entry]:
    """Label -> system: its short name, with its runs where two labels are alike."""
    short = {id(entry): name for name, entry in short_names(chosen).items()}
    labels = [short.get(id(entry), entry.name) for entry in chosen]
    counts = Counter(labels)
    return {
        label if counts[label] == 1 else f"{label}{SEPARATOR}{_run_ids(entry, place)}": entry
        for label, entry in zip(labels, chosen, strict=True)
    }
