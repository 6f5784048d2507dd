"""The claims of "Benchmarking Middle-Trained Language Models" (Lassance et al. 2023), methods.md 14.3.

First a to e; then what it says of conditions: of SPLADE and dense, of teachers, of few queries, and of collections that
nothing was fine-tuned on or that middle training never saw.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from midmask.benchmark.results import Results
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask_papers.published import CORPUS, CorpusSplit, Published, Term, home, key_of, published, resolve_corpus
from midmask_papers.ruling import (
    Claim,
    ClaimPart,
    Ruling,
    all_of,
    below_floor,
    how_to_measure,
    pair,
    pick,
    points,
    term,
    within,
)

PAPER = "sigir23"
WEAK, STRONG = "1", "4"
"""Tables of the weakest and the strongest fine-tuning: one negative without a teacher, 32 with one."""


def _number(table: str, label: str, representation: str) -> Published:
    return pick(PAPER, table, label=label, representation=representation, measure="RR@10")


def plain_mlm(results: Results) -> Ruling:
    """(a) MLM on the target corpus > BERT, dense, one negative."""
    return all_of(results, PAPER, [pair(_number(WEAK, "BERT MS", "dense"), _number(WEAK, "BERT", "dense"))])


def gaps_shrink(results: Results) -> Ruling:
    """(b) Table 1's spread > Table 4's, between the systems that are highest and lowest there.

    The systems are named beforehand: the highest less the lowest of what was measured grows with its noise, and so
    would the gap wherever queries are few.
    """
    return all_of(results, PAPER, [_gain_shrinks(representation) for representation in ("dense", "splade")])


def _gain_shrinks(representation: str) -> ClaimPart:
    terms: list[Term] = []
    said = []
    for sign, table in ((1.0, WEAK), (-1.0, STRONG)):
        rows = [n for n in published(PAPER, table) if n.representation == representation and n.measure == "RR@10"]
        high, low = (choose(rows, key=lambda number: number.value) for choose in (max, min))
        terms += [term(sign, high), term(-sign, low)]
        said.append(f"({high.system} - {low.system}, {high.setting})")
    return ClaimPart(f"{representation}: {' less '.join(said)}", tuple(terms), "RR@10", ("msmarco", "dev"))


def retromae_best(results: Results) -> Ruling:
    """(c) RetroMAE-MS > every other dense system, on the mean over settings."""
    columns = list(_dense_columns())
    rivals = [number.label for number in columns[0] if number.label != "RetroMAE MS"]
    measured = [column for column in columns if _is_measured(column, results)] or columns[:1]
    verdict = all_of(results, PAPER, [_gain_over(rival, measured) for rival in rivals])
    settings = ", ".join(column[0].setting for column in measured)
    return replace(verdict, sentence=f"{verdict.sentence} Mean over: {settings}.")


def _dense_columns() -> Iterator[list[Published]]:
    """Dense RR@10 of all systems, setting by setting, Tables 1 to 5."""
    rows = [n for table in "12345" for n in published(PAPER, table) if n.representation == "dense"]
    rows = [number for number in rows if number.measure == "RR@10"]
    for setting in dict.fromkeys(number.setting for number in rows):
        yield [number for number in rows if number.setting == setting]


def _is_measured(column: list[Published], results: Results) -> bool:
    """Whether the setting is among the results, with RetroMAE."""
    return bool(results.where(system="retromae", representation="dense", setting=column[0].setting))


def _gain_over(rival: str, columns: list[list[Published]]) -> ClaimPart:
    terms = []
    for column in columns:
        for weight, label in ((1.0, "RetroMAE MS"), (-1.0, rival)):
            (number,) = (one for one in column if one.label == label)
            terms.append(term(weight / len(columns), number))
    return ClaimPart(f"RetroMAE MS against {rival}", tuple(terms), "RR@10", ("msmarco", "dev"))


def one_helps_the_other(results: Results) -> Ruling:
    """(d) RetroMAE and coCondenser, made for dense retrieval, > BERT as SPLADE; LexMAE, made for sparse, dense."""
    pairs = [("RetroMAE MS", "splade"), ("coCondenser MS", "splade"), ("LexMAE MS", "dense")]
    return all_of(
        results,
        PAPER,
        [
            pair(_number(WEAK, label, view), _number(WEAK, "BERT", view), what=f"{label} against BERT, {view}")
            for label, view in pairs
        ],
    )


def no_trec_difference(results: Results) -> Ruling:
    """(e) No two systems differ significantly on TREC DL (paired t-test, Bonferroni, 0.05)."""
    groups = list(_trec_groups(results))
    found = [row for place, own in groups for row in _compare_all(own, place)]
    if not found:
        how = how_to_measure(f"{PAPER} --zero-shot ir_datasets:msmarco-passage/trec-dl-2019/judged")
        return Ruling("not measured", f"No two systems on trec-dl-2019 or trec-dl-2020 by nDCG@10. {how}")
    significant = [row for row in found if row.significant]
    largest = max(found, key=lambda row: abs(row.difference))
    named = ", ".join(f"{row.system} against {row.baseline} {points(row.difference)}" for row in significant[:5])
    short = [
        said
        for place, own in groups
        for said in below_floor(list(dict.fromkeys(one.key for one in own)), [place], results, "nDCG@10")
    ]
    return Ruling(
        "not decidable" if short else "does not hold" if significant else "holds",
        f"{len(significant)} of {len(found)} pairs differ significantly{f' ({named})' if named else ''}; the largest "
        f"difference is {points(largest.difference)}, the least to be found there {points(largest.detectable)}"
        f"{''.join(f'; {said}' for said in short)}.",
        estimate=abs(largest.difference),
        detectable=largest.detectable,
        representations=tuple(dict.fromkeys(one.key.representation for _, own in groups for one in own)),
    )


def _trec_groups(results: Results) -> Iterator[tuple[CorpusSplit, Results]]:
    """The place and results of each group of two systems or more that share a fine-tuning and a representation."""
    for corpus in (resolve_corpus(name, results) for name in ("trec-dl-2019", "trec-dl-2020")):
        here = results.where(corpus=corpus)
        for setting, representation, split in product(*map(here.names, ("setting", "representation", "split"))):
            group = here.where(setting=setting, representation=representation, split=split)
            if len({result.key for result in group}) > 1:
                yield (corpus, split), group


def _compare_all(own: Results, place: CorpusSplit) -> list[Comparison]:
    tables = own.per_query(*place, by=lambda key: f"{key.system} ({key.collection})")
    return list(compare(tables, measure="nDCG@10", correction="bonferroni"))


def target_collection(results: Results) -> Ruling:
    """RetroMAE pre-trained on the target corpus > on Wikipedia."""
    return all_of(
        results,
        PAPER,
        [
            pair(_number(WEAK, "RetroMAE MS", "dense"), _number(WEAK, "RetroMAE", "dense"), what="corpus against wiki"),
        ],
    )


SIGIR23 = (
    Claim(
        "sigir23.a_mlm",
        PAPER,
        "(a) Plain MLM on the target corpus gives dense retrieval with one negative more than 1.4 points of MRR@10.",
        plain_mlm,
    ),
    Claim(
        "sigir23.b_gaps_shrink",
        PAPER,
        "(b) Differences between systems shrink as fine-tuning gets stronger (dense 4.0 to 1.8, SPLADE 2.2 to 0.7).",
        gaps_shrink,
    ),
    Claim(
        "sigir23.c_retromae_best",
        PAPER,
        "(c) RetroMAE on the target corpus is the best dense system in nearly every setting.",
        retromae_best,
    ),
    Claim(
        "sigir23.d_crosswise",
        PAPER,
        "(d) Middle training made for dense retrieval helps sparse retrieval, and conversely.",
        one_helps_the_other,
    ),
    Claim("sigir23.e_trec", PAPER, "(e) No difference on TREC DL is significant.", no_trec_difference),
    Claim(
        "sigir23.collection",
        PAPER,
        "Middle training on the target corpus is better than on Wikipedia (RetroMAE, dense, one negative).",
        target_collection,
    ),
)


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
    numbers = [row for row in published(PAPER, "3") if (row.representation, row.corpus) == ("splade", "beir13")]
    rows = {row.label: row for row in numbers}
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
        number.label: number
        for number in published(PAPER, table)
        if (number.representation, number.measure, number.note) == (representation, "RR@10", "")
        and (not setting or number.setting == setting)
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
