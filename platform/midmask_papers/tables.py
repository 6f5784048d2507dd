"""The papers' tables: how a sheet is laid out and filled, and each paper's sheets, row by row and column by column."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from midmask.benchmark.design import NONE, Released
from midmask.benchmark.figures import VIEW_NAMES
from midmask.benchmark.report import NamedTable
from midmask.benchmark.results import Results, SystemKey, home, order_splits
from midmask.core.registry import Registry
from midmask.evaluation.groups import GROUPS, folders, group_average
from midmask.evaluation.rendering import Beside, Style
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, TableCell, TableColumn, tabulate
from midmask_papers.published import CORPUS, Published, key_of, paper, published, resolve_corpus
from midmask_papers.ruling import homes

AVERAGED = frozenset(GROUPS)
"""Groups of collections that papers print one number for."""


@dataclass(frozen=True)
class Slot:
    """A cell of a table. number: the printed value; none: nothing is printed."""

    row: str
    column: str
    key: SystemKey
    corpus: str
    split: str
    measure: str
    number: Published | None = None


@dataclass(frozen=True)
class Sheet:
    """A table of a paper. baseline: the row that stars compare with; empty: superscripts for all pairs."""

    name: str
    heading: str
    slots: Callable[[], Iterable[Slot]]
    style: Style = field(default_factory=Style)
    baseline: str = ""


def slots_of(
    name: str, table: str, row: Callable[[Published], str], column: Callable[[Published], str]
) -> Iterator[Slot]:
    """One slot per printed number of a system; differences between systems have none."""
    for number in published(name, table):
        if number.against:
            continue
        yield Slot(row(number), column(number), key_of(number), number.corpus, number.split, number.measure, number)


def fill(sheet: Sheet, name: str, results: Results, notes: Sequence[str]) -> NamedTable | None:
    """The sheet with our numbers; none if nothing in it was measured."""
    folders = [one for name in results.names("system") if (one := Released.of(name))]
    printed = list(_with_released(sheet.slots(), folders))
    slots, replaced = _name_ours(printed, results)
    cells = {(slot.row, slot.column): tables for slot in slots if (tables := _tables(results, slot))}
    averages = _averages(results, slots)
    if not cells and not averages:
        return None
    measured = _tabulate(slots, cells, sheet.baseline)
    style = sheet.style if measured.protocol.baseline is None else replace(sheet.style, marks="stars")
    table = ResultTable(
        tuple(dict.fromkeys(slot.row for slot in slots)),
        _columns(slots),
        {**measured.cells, **averages},
        measured.comparisons,
        measured.protocol,
    )
    if any(Released.of(slot.key.system) for slot in printed):
        replaced.append("A released folder was pre-trained by the paper's authors, and is fine-tuned here.")
    beside = _publish_beside(printed, name, results, [*replaced, *notes])
    return NamedTable(f"{name}.{sheet.name}", sheet.heading, table, beside, style)


def _with_released(slots: Iterable[Slot], folders: Sequence[Released]) -> Iterator[Slot]:
    """The slots, and each once more behind its own for every folder that is its system, in a row of the folder's: it
    has the same printed number, and the folder fine-tuned here is in the place of our middle training.
    """
    for slot in slots:
        yield slot
        for released in folders:
            if released.system == slot.key.system and released.collection in ("", slot.key.collection):
                key = replace(slot.key, system=str(released), collection=NONE)
                yield replace(slot, row=f"{slot.row}, released: {released.folder}", key=key)


def _columns(slots: Sequence[Slot]) -> tuple[str, ...]:
    """As the fullest row has them, then those that it lacks."""
    rows: dict[str, list[str]] = {}
    for slot in slots:
        rows.setdefault(slot.row, []).append(slot.column)
    return tuple(dict.fromkeys([*max(rows.values(), key=len), *(slot.column for slot in slots)]))


def _name_ours(slots: Sequence[Slot], results: Results) -> tuple[list[Slot], list[str]]:
    """The slots in our names: the corpus itself by the label that it has here, which also stands for a collection that
    nothing was pre-trained on here, unless the table has both; a fine-tuning that the paper does not tell as the first
    that the system was run in. And what to say of it.
    """
    labels = results.names("collection")
    itself = CORPUS if CORPUS in labels else home(results)
    taken = {replace(slot.key, collection=itself) for slot in slots if slot.key.collection == CORPUS}
    matched, said = [], []
    for slot in slots:
        key = slot.key
        own = replace(key, collection=itself) if key.collection not in (*labels, NONE, "") else key
        if key.collection not in (CORPUS, NONE, "") and own != key:
            own = key if own in taken else own
            said += [f"Pre-trained on {itself} in place of {key.collection}."] if own != key else []
        if not key.setting:
            settings = results.where(**{**vars(own), "setting": None}).names("setting")
            own = replace(own, setting=settings[0] if settings else "")
            said += [f"Fine-tuned as {settings[0]} where the paper does not say how."] if settings else []
        matched.append(replace(slot, key=own))
    return matched, list(dict.fromkeys(said))


def _tables(results: Results, slot: Slot) -> list[pa.Table]:
    """Our values of a slot, one table a seed."""
    if slot.corpus in AVERAGED:
        return []
    corpus = _corpus(results, slot)
    rows = results.where(**vars(slot.key), corpus=corpus)
    preferred = slot.split if corpus == slot.corpus else ""
    split = next(iter(order_splits(rows.names("split"), preferred)), None)
    return [result.per_query for result in rows if result.split == split and slot.measure in result.measures]


def _corpus(results: Results, slot: Slot) -> str:
    """MS MARCO stands for the corpus that systems are fine-tuned on; other corpora for themselves."""
    stands = slot.corpus == "msmarco" and slot.corpus not in results.names("corpus")
    return home(results) if stands else resolve_corpus(slot.corpus, results)


def _averages(results: Results, slots: Sequence[Slot]) -> dict[tuple[str, str], TableCell]:
    """The means over groups of BEIR's sets, of systems with all of a group's sets."""
    means = {slot: mean for slot in slots if (mean := _average(results, slot)) is not None}
    best: dict[str, float] = {}
    for slot, mean in means.items():
        best[slot.column] = max(mean, best.get(slot.column, mean))
    return {(slot.row, slot.column): TableCell(mean, best=mean == best[slot.column]) for slot, mean in means.items()}


def _average(results: Results, slot: Slot) -> float | None:
    if slot.corpus not in AVERAGED:
        return None
    corpora = results.names("corpus")
    means: dict[str, float] = {}
    for name in folders(slot.corpus):
        label = beir if (beir := f"beir-{name}") in corpora else name
        rows = [result for result in results.where(**vars(slot.key), corpus=label) if slot.measure in result.measures]
        if not rows:
            return None
        means[name] = sum(result.measures[slot.measure] for result in rows) / len(rows)
    return group_average(slot.corpus, means)


def _tabulate(slots: Sequence[Slot], cells: Mapping[tuple[str, str], list[pa.Table]], baseline: str) -> ResultTable:
    """Columns with our values; held against the baseline where every one of them has it."""
    columns: dict[str, dict[str, list[pa.Table]]] = {}
    for (row, column), tables in cells.items():
        columns.setdefault(column, {})[row] = tables
    measures = {slot.column: slot.measure for slot in slots}
    against = baseline if baseline and all(baseline in rows for rows in columns.values()) else None
    return tabulate(
        [TableColumn(name, measures[name], rows) for name, rows in columns.items()],
        ComparisonProtocol(baseline=against),
    )


def _publish_beside(slots: Sequence[Slot], name: str, results: Results, notes: Sequence[str]) -> Beside:
    """Published numbers, and where conditions differ."""
    printed = {(slot.row, slot.column): slot.number for slot in slots if slot.number is not None}
    doubts = {place: number.note for place, number in printed.items() if number.note}
    theirs = "; ".join(f"{what}: {said}" for what, said in paper(name).conditions.items())
    collections, seeds = (_join_names(results, name) for name in ("collection", "seed"))
    ours = f"corpus: {', '.join(homes(results))}; collections: {collections}; seeds: {seeds}"
    about = [f"Published by {paper(name).citation} under: {theirs}.", f"Here: {ours}.", *notes]
    about += [f"{row}, {column}: {note}." for (row, column), note in doubts.items()]
    return Beside(" ".join(about), {place: number.value for place, number in printed.items()}, frozenset(doubts))


def _join_names(results: Results, field_name: str) -> str:
    names = [str(name) for name in results.names(field_name) if name != NONE]
    return ", ".join(names) or NONE


PERCENT = Style(decimals=3, percent=True)
"""One decimal, as SIGIR'23 and CoT-MoTE print."""

PRINTED = {"RR@10": "MRR@10", "RR@100": "MRR@100", "R@1000": "R@1k"}
"""Measures as papers head their columns."""


def _measure(number: Published) -> str:
    """A column's head: the measure, and the collection where that is not the paper's own."""
    own = PRINTED.get(number.measure, number.measure)
    return own if number.corpus == "msmarco" else f"{own} {number.corpus}"


def _label(number: Published) -> str:
    return number.label


def _row_name(number: Published) -> str:
    return f"{VIEW_NAMES[number.representation]} {_measure(number)}"


def _shots_name(number: Published) -> str:
    return f"{_row_name(number)} {number.setting.rpartition('_')[2]}"


def _factor(number: Published) -> str:
    return f"{number.condition}: {number.label}"


def _select_slots(paper: str, table: str, *, condition: str = "", labels: Sequence[str] = ()) -> Iterable[Slot]:
    """Part of a table: of one condition, or of some rows."""
    for slot in slots_of(paper, table, _label, _row_name):
        number = slot.number
        if number is not None and number.condition.startswith(condition) and (not labels or number.label in labels):
            yield slot


def _set_slots() -> Iterable[Slot]:
    """DupMAE's Table 2, systems in rows here, side by side when printed; averages of systems without sets left out."""
    slots = list(slots_of("dupmae", "2", _label, lambda number: number.corpus))
    per_set = {slot.row for slot in slots if slot.column != "beir18"}
    return [slot for slot in slots if slot.row in per_set]


def _rom() -> Iterable[Slot]:
    """What its abstract compares; no number survives."""
    for system, label in (("none", "BERT"), ("mlm", "random masks"), ("rom", "ROM")):
        for setting in ("in_batch", "dpr"):
            key = SystemKey(system, "none" if system == "none" else "corpus", "dense", setting)
            for measure in ("RR@10", "nDCG@10", "R@100"):
                yield Slot(label, f"{setting} {PRINTED.get(measure, measure)}", key, "msmarco", "dev", measure)


SIGIR23 = (
    *(
        Sheet(
            f"table{number}",
            f"Table {number}: {said}",
            partial(slots_of, "sigir23", number, _label, _row_name),
            PERCENT,
        )
        for number, said in (
            ("1", "one negative, no distillation"),
            ("2", "32 negatives, no distillation"),
            ("3", "one negative, distillation"),
            ("4", "32 negatives, distillation"),
        )
    ),
    Sheet("table5", "Table 5: few train queries", partial(slots_of, "sigir23", "5", _label, _shots_name), PERCENT),
    Sheet(
        "table6", "Table 6: few train queries, SPLADE", partial(slots_of, "sigir23", "6", _label, _shots_name), PERCENT
    ),
    Sheet(
        "table7",
        "Table 7: TripClick",
        partial(slots_of, "sigir23", "7", _label, lambda number: number.split.removeprefix("test.")),
        PERCENT,
    ),
)

DUPMAE = (
    Sheet("table1", "Table 1: MS MARCO and TREC DL", partial(slots_of, "dupmae", "1", _label, _measure)),
    Sheet("table2", "Table 2: BEIR, zero-shot", _set_slots, Style(decimals=3, transposed=True)),
    Sheet("table3", "Table 3: decoders and representations", partial(slots_of, "dupmae", "3", _label, _measure)),
)

RETROMAE = (
    *(
        Sheet(
            f"main.{name}",
            f"Main results: {condition}",
            partial(_select_slots, "retromae", "main", condition=condition),
        )
        for name, condition in (
            ("dpr", "DPR-style, general pre-training"),
            ("ance", "ANCE-style, general pre-training"),
            ("corpus", "ANCE-style, MS MARCO pre-training"),
            ("distilled", "distilled, MS MARCO pre-training"),
        )
    ),
    Sheet("beir", "Main results: BEIR, zero-shot", partial(slots_of, "retromae", "BEIR", _label, _measure)),
    Sheet("nq", "Main results: NQ", partial(slots_of, "retromae", "NQ", _label, _measure)),
    Sheet(
        "table6",
        "Table 6: factors",
        partial(slots_of, "retromae", "6", _factor, _measure),
        baseline="decoding: enhanced",
    ),
)

OWN = "CoT-MoTE (mined negatives)"


def _cotmote(number: str, said: str, labels: tuple[str, ...]) -> Sheet:
    """One of Tables 3 to 5: the first row is what stars are held against."""
    slots = partial(_select_slots, "cotmote", "3-5", labels=labels)
    return Sheet(f"table{number}", f"Table {number}: {said}", slots, PERCENT, baseline=labels[0])


COTMOTE = (
    Sheet(
        "table1",
        "Table 1: one encoder or two",
        lambda: (slot for slot in _select_slots("cotmote", "1") if slot.measure == "RR@10"),
        PERCENT,
        baseline="fully separate",
    ),
    Sheet("table2", "Table 2: MS MARCO and TREC DL", partial(slots_of, "cotmote", "2", _label, _measure), PERCENT),
    Sheet("beir", "BEIR, zero-shot", partial(slots_of, "cotmote", "BEIR", _label, _measure), PERCENT),
    _cotmote("3", "experts", ("Siamese", "Full sep", OWN)),
    _cotmote("4", "experts pre-trained on the other side's texts", ("CoT-MoTE, experts' corpora switched", OWN)),
    _cotmote("5", "negatives", ("CoT-MoTE, BM25 negatives (stage 1)", OWN)),
)

SHEETS: Registry[tuple[Sheet, ...]] = Registry(
    "paper",
    {
        "sigir23": SIGIR23,
        "dupmae": DUPMAE,
        "retromae": RETROMAE,
        "cotmote": COTMOTE,
        "rom": (Sheet("masks", "Masks", _rom, Style(decimals=4)),),
    },
)


def paper_tables(preset: str, results: Results, notes: Sequence[str] = ()) -> list[NamedTable]:
    """A paper's tables that anything was measured of; none for a preset that is no paper's.

    Args:
        notes: sentences on how conditions differ from the paper's, for the captions.
    """
    if preset not in set(SHEETS) or not results:
        return []
    filled = (fill(sheet, preset, results, notes) for sheet in SHEETS[preset])
    return [table for table in filled if table is not None]
