"""Two or more systems on the same queries: who wins how often, by how much, and what those queries look like."""

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st

from context import PageContext
from look import NONE, VERDICTS, choice, choices, link, table
from midmask.evaluation.escaping import markdown_text
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask.leaderboard.comparable import ComparableSystems, comparable
from midmask.leaderboard.entries import Entry
from midmask.leaderboard.queries import Pairing, Sided, pair_systems
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, measure_names
from runs import choose_place, nothing_evaluated, rows_at
from views.compare_queries import by_kind, differences, one_by_one

SIDES: Mapping[str, Sided] = {"largest differences": "either", "wins": "wins", "losses": "losses"}
COUNTS = ("5", "10", "20")
FEWEST = 2
SHOWN = 3
"""Systems that are compared if none is chosen, the best."""

SMALL_P = 1e-4
"""Below, a p is not told more precisely."""

ADDRESS = ("place", "measure", "base", "systems", "of")
"""Keys of the choices that decide what is seen of one query."""


STYLE = """<style>
.mm-board[aria-label="standings"] td:first-child {white-space: normal; min-width: 11rem;}
</style>"""


def show(context: PageContext) -> None:
    if not context.rows:
        nothing_evaluated()
        return
    with st.sidebar:
        place = choose_place(context.rows)
        measure = choice("Measure", "measure", measure_names(rows_at(context.rows, place)))
    found = comparable(context.entries, place, measure, context.per_query)
    if len(found.entries) < FEWEST:
        st.info(
            "It takes two systems with values of this measure for each query; here "
            + ("is one." if found.entries else "is none.")
            + " Choose another collection or measure in the sidebar, or evaluate more."
        )
        st.caption(markdown_text(not_offered(found)))
        return
    base, pairings = choose(found, place, measure)
    standings(found, pairings, base, measure, context)
    with st.sidebar:
        name = choice("Query by query", "of", list(pairings))
        side = SIDES[choice("Queries shown", "side", list(SIDES))]
        count = int(choice("How many", "count", COUNTS))
        query = st.text_input("One query, by its id", key="query", bind="query-params").strip()
    if not pairings[name].queries:
        st.info("These two systems share no query.")
        return
    pair = {one: found.entries[one].rows[place][0] for one in (name, base)}
    st.subheader(markdown_text(f"{name} against {base}"))
    differences(pairings[name], name, base, measure, query)
    by_kind(context, pairings[name], pair)
    one_by_one(context, pairings[name], pair, measure, (query, side, count), lambda one: address(one, name))


def choose(found: ComparableSystems, place: CollectionSplit, measure: str) -> tuple[str, dict[str, Pairing]]:
    """Draws the choice of a baseline and of systems; the baseline, and each system paired with it."""
    first = found.baseline()
    with st.sidebar:
        base = choice("Held against", "base", [first, *(name for name in found.entries if name != first)])
        others = found.others(place, measure, base)
        wanted = choices("Systems", "systems", others, others[:SHOWN])
    return base, {name: pair_systems(found.tables[name], found.tables[base], measure) for name in wanted}


def address(query: str, name: str) -> str:
    """Where one query is found again, with all choices: their defaults depend on what the store holds."""
    values = {key: st.session_state.get(key) for key in ADDRESS}
    known = {key: value for key, value in values.items() if value}
    return "?" + urlencode({**known, "of": name, "query": query}, doseq=True)


def standings(
    found: ComparableSystems, pairings: Mapping[str, Pairing], base: str, measure: str, context: PageContext
) -> None:
    """Wins, losses and ties of each system, with the test of its difference."""
    tested = _tested(found, pairings, base, measure)
    heads = [("System", ""), (measure, "num"), ("Difference", "num"), ("Verdict", "")]
    heads += [(text, "num") for text in ("95% interval", "p (Holm)", "Wins", "Losses", "Ties")]
    lines = [
        [
            (link(context.link(_newest(found.entries[name])), name), ""),
            *_differences(tested.get(name)),
            *((f"{count:,}", "num") for count in (own.wins, own.losses, own.ties)),
        ]
        for name, own in pairings.items()
    ]
    st.html(STYLE + table(heads, lines, "standings"))
    notes = [f"Held against {base}.", *_seeds({name: len(found.tables[name]) for name in (base, *pairings)})]
    notes += ["Paired t-test over the queries that all have, at 0.05 after Holm's correction."]
    left = {name: own.left_out for name, own in pairings.items() if own.left_out}
    notes += [f"{count:,} queries that only one of {name} and {base} has are left out." for name, count in left.items()]
    st.caption(markdown_text(" ".join([*notes, not_offered(found)])))


def _seeds(counts: Mapping[str, int]) -> list[str]:
    """The sentence that says of which systems the values are means over several seeds."""
    by_count: dict[int, list[str]] = {}
    for name, count in counts.items():
        by_count.setdefault(count, []).append(name)
    told = [f"{count} seeds ({', '.join(names)})" for count, names in sorted(by_count.items()) if count > 1]
    return [f"Values are means over {'; '.join(told)}."] if told else []


def _newest(entry: Entry) -> LeaderboardRow:
    return max((row for own in entry.rows.values() for row in own), key=lambda row: row.started)


def not_offered(found: ComparableSystems) -> str:
    """Which systems cannot be chosen, and why; empty if all can."""
    said = []
    if found.without:
        names = ", ".join(found.without[:FEWEST]) + (" and others" if len(found.without) > FEWEST else "")
        said.append(f"Not offered: {len(found.without)} systems whose runs keep no values per query ({names}).")
    if found.unread:
        said.append(f"The {found.unread:,} oldest systems here are not offered.")
    return " ".join(said)


def _differences(row: Comparison | None) -> list[tuple[str, str]]:
    """The cells of a difference and its test, dashes where it was not tested. Sign and significance are words and
    marks; the colour repeats them.
    """
    if row is None:
        return [(NONE, "num"), (NONE, "num"), (NONE, ""), (NONE, "num"), (NONE, "num")]
    said, kind = VERDICTS["equal" if not row.significant else "better" if row.difference > 0 else "worse"]
    return [
        (f"{row.mean:.4f}", "num"),
        (f"{row.difference:+.4f}", f"num {kind}"),
        (said, kind),
        (f"{row.low:+.4f} … {row.high:+.4f}", "num quiet"),
        ("&lt; 0.0001" if row.p_corrected < SMALL_P else f"{row.p_corrected:.2g}", "num"),
    ]


def _tested(
    found: ComparableSystems, pairings: Mapping[str, Pairing], base: str, measure: str
) -> dict[str, Comparison]:
    """On the queries that all have; none where these are fewer than two."""
    shared = set.intersection(*(set(own.queries) for own in pairings.values()))
    if len(shared) < FEWEST:
        return {}
    tables = {name: found.tables[name] for name in (base, *pairings)}
    return {row.system: row for row in compare(tables, measure=measure, baseline=base, queries=shared)}
