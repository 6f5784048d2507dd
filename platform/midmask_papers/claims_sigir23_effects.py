"""What "Benchmarking Middle-Trained Language Models" (Lassance et al. 2023) says of conditions: of SPLADE and dense, of
teachers, of few queries, and of collections that nothing was fine-tuned on or that middle training never saw.
"""

from collections.abc import Callable, Sequence

from midmask.benchmark.results import Results
from midmask_papers.claims_sigir23 import PAPER, STRONG
from midmask_papers.matching import CORPUS, home, key_of
from midmask_papers.published import Published, published
from midmask_papers.verdict import Claim, ClaimPart, Ruling, all_of, pair, pick, term, within

TAUGHT = {"1": "3", "2": "4"}
"""Table without a teacher -> the one with the same negatives and a teacher."""

NOTHING = 0.01
"""A mean gain of at most one point of nDCG@10 is next to nothing: the spread of a single run on BEIR."""


def sparse_above_dense(results: Results) -> Ruling:
    """SPLADE > dense in each of Tables 1 to 4, on the mean over systems."""
    parts = []
    for table in "1234":
        rows = {view: _row(table, view) for view in ("splade", "dense")}
        parts.append(_mean_gain(f"SPLADE against dense, {_setting(table)}", rows["splade"], rows["dense"], results))
    return all_of(results, PAPER, parts)


def teachers_help(results: Results) -> Ruling:
    """Distilled > not distilled, dense, with the same negatives, on the mean over systems: about 3 points."""
    parts = [
        _mean_gain(
            f"{_setting(taught)} against {_setting(table)}", _row(taught, "dense"), _row(table, "dense"), results
        )
        for table, taught in TAUGHT.items()
    ]
    return all_of(results, PAPER, parts)


def few_queries(results: Results) -> Ruling:
    """The spread with 50,000 queries > that with all (Table 5 against 4), between the systems that are highest and
    lowest with 50,000.
    """
    parts = []
    for view in ("dense", "splade"):
        few = {number.label: number for number in _row("5", view, "sigir23_32neg_distil_50k").values()}
        every = _row(STRONG, view)
        high, low = (choose(few.values(), key=lambda number: number.value).label for choose in (max, min))
        terms = [term(1.0, few[high]), term(-1.0, few[low]), term(-1.0, every[high]), term(1.0, every[low])]
        what = f"{view}: {high} less {low}, with 50,000 queries less with all"
        parts.append(ClaimPart(what, tuple(terms), "RR@10", ("msmarco", "dev")))
    return all_of(results, PAPER, parts)


def nothing_on_beir(results: Results) -> Ruling:
    """SPLADE, distilled, one negative: middle training's mean gain over BERT on BEIR is next to nothing."""
    rows = {one.label: one for one in published(PAPER, "3") if (one.representation, one.corpus) == ("splade", "beir13")}
    base = rows.pop("BERT")
    part = _mean_gain("middle training against BERT", rows, dict.fromkeys(rows, base), results, elsewhere=True)
    return within(part, results, NOTHING, f"{PAPER} --zero-shot beir13:FOLDER")


def target_from_scratch(results: Results) -> Ruling:
    """Table 7: MLM from scratch on TripClick > middle training on MS MARCO."""
    ours = _head("BERT-MLM-12L (from scratch on TripClick)")
    rivals = [_head(label) for label in ("BERT-MS", "BERT-MS-CLS", "coCondenser-MS", "LexMAE-MS")]
    return _better_by_collection(results, ours, rivals)


def general_beats_web(results: Results) -> Ruling:
    """Table 7: RetroMAE on Wikipedia > every middle training on MS MARCO, and BERT."""
    rivals = [_head(label) for label in ("BERT", "BERT-MS", "BERT-MS-CLS", "coCondenser-MS", "LexMAE-MS")]
    return _better_by_collection(results, _head("RetroMAE"), rivals)


def _better_by_collection(results: Results, ours: Published, rivals: Sequence[Published]) -> Ruling:
    """A system is better than others whose middle training read something else."""
    parts = [pair(ours, rival, collections_apart=True) for rival in rivals]
    return all_of(results, f"{PAPER} --corpus tripclick:FOLDER", parts)


def _head(label: str) -> Published:
    return pick(PAPER, "7", label=label, split="test.head-dctr")


def _setting(table: str) -> str:
    return published(PAPER, table)[0].setting


def _row(table: str, representation: str, setting: str = "") -> dict[str, Published]:
    """Label -> RR@10 of a table's systems, without doubtful values."""
    return {
        one.label: one
        for one in published(PAPER, table)
        if (one.representation, one.measure, one.note) == (representation, "RR@10", "")
        and (not setting or one.setting == setting)
    }


def _mean_gain(
    what: str,
    better: dict[str, Published],
    worse: dict[str, Published],
    results: Results,
    *,
    elsewhere: bool = False,
) -> ClaimPart:
    """The mean of the differences over the systems that both have; of those that were measured, if any were."""
    labels = [label for label in better if label in worse]
    measured = [label for label in labels if _is_among(better[label], results) and _is_among(worse[label], results)]
    chosen = measured or labels
    against = {key_of(worse[label]): worse[label] for label in chosen}  # one baseline for all, or one each
    terms = [term(1 / len(chosen), better[label]) for label in chosen]
    terms += [term(-1 / len(against), number) for number in against.values()]
    place = (better[chosen[0]].corpus, better[chosen[0]].split)
    said = f"{what} ({', '.join(chosen)})" if len(chosen) < len(labels) else what
    return ClaimPart(said, tuple(terms), better[chosen[0]].measure, place, elsewhere)


def _is_among(number: Published, results: Results) -> bool:
    """Whether the system was measured after reading what the paper says, in any fine-tuning."""
    if not results:
        return False
    read = results.where(system=number.system, representation=number.representation).names("collection")
    return number.collection in read or (number.collection == CORPUS and home(results) in read)


def _claim(name: str, text: str, check: Callable[[Results], Ruling]) -> Claim:
    return Claim(f"sigir23.{name}", PAPER, text, check)


EFFECTS: Sequence[Claim] = (
    _claim("f_sparse", "SPLADE is better than dense retrieval throughout.", sparse_above_dense),
    _claim("g_teachers", "Distillation adds about 3 points to dense retrieval.", teachers_help),
    _claim("h_few_queries", "Differences between systems grow with fewer train queries.", few_queries),
    _claim("i_beir", "On BEIR, middle training brings SPLADE next to nothing.", nothing_on_beir),
    _claim(
        "j_scratch",
        "On TripClick, MLM from scratch there is better than middle training on MS MARCO.",
        target_from_scratch,
    ),
    _claim(
        "k_general",
        "On TripClick, RetroMAE on Wikipedia is better than middle training on MS MARCO.",
        general_beats_web,
    ),
)
