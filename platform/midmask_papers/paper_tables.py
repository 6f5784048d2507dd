"""The papers' tables, row by row and column by column."""

from collections.abc import Iterable, Sequence
from functools import partial

from midmask.benchmark.results import Results, SystemKey
from midmask.evaluation.rendering import Style
from midmask.registry import Registry
from midmask_papers.layouts import NamedTable, Sheet, Slot, fill, slots_of
from midmask_papers.published import Published

PERCENT = Style(decimals=3, percent=True)
"""One decimal, as SIGIR'23 and CoT-MoTE print."""

PRINTED = {"RR@10": "MRR@10", "RR@100": "MRR@100", "R@1000": "R@1k"}
"""Measures as papers head their columns."""

VIEWS = {"dense": "dense", "splade": "SPLADE", "hybrid": "hybrid", "lexical": "lexical"}


def _measure(number: Published) -> str:
    """A column's head: the measure, and the collection where that is not the paper's own."""
    own = PRINTED.get(number.measure, number.measure)
    return own if number.corpus == "msmarco" else f"{own} {number.corpus}"


def _label(number: Published) -> str:
    return number.label


def _row_name(number: Published) -> str:
    return f"{VIEWS[number.representation]} {_measure(number)}"


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
