"""The audit of a mining run: which candidates were refused and why, and how many are likely relevant. Counts are added
up for one block of queries after another.

False negatives are estimated three ways, each as a share of the candidates within the wanted ranks, before any rule:
those judged relevant (what a miner without the judgements would have taken), near-duplicates of a positive, and, of
those that a teacher has scored and that are no positives, those that it puts above a positive; the last also of the
chosen negatives.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from midmask.core.arrays import Ints
from midmask.mining.negatives import ALLOWED, CODE, NEGATIVES, VERDICTS, Codes, Stretch, negatives_table

EXAMPLES = 20
"""Refused candidates of each rule that are kept to be looked at."""


class Audit:
    """Counts over a mining run, and the first candidates that each rule refused (`refused`, NEGATIVES).

    Args:
        sources: the lists' names.
        per_query: negatives that were wanted of each query.
    """

    def __init__(self, sources: Sequence[str], per_query: int) -> None:
        self._sources, self._per_query = list(sources), per_query
        self._verdicts = np.zeros((len(sources), len(VERDICTS)), np.int64)
        self._counts: Counter[str] = Counter()
        self._examples: Counter[int] = Counter()
        self.refused = [NEGATIVES.empty_table()]
        self._overlap: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._both: Counter[tuple[int, int]] = Counter()

    def add(self, stretch: Stretch, verdict: Codes, chosen: Ints) -> None:
        """Counts the verdicts and the chosen negatives of one block of queries.

        Args:
            stretch: the block's candidates. verdict: of each, before the draw. chosen: rows of the negatives drawn.

        Raises:
            ValueError: if a positive was chosen.
        """
        wrong = chosen[stretch.facts.is_positive[chosen]]
        if len(wrong):
            row = stretch.table.slice(int(wrong[0]), 1).to_pylist()[0]
            raise ValueError(
                f"passage {row['doc_id']!r} is relevant to query {row['query_id']!r}, so it cannot be a negative"
            )
        became = verdict.copy()
        became[chosen] = CODE["chosen"]
        np.add.at(self._verdicts, (stretch.source, became), 1)
        have = np.bincount(stretch.query[chosen], minlength=len(stretch.query_ids))
        self._counts.update(negatives=len(chosen), some=int((have > 0).sum()))
        self._counts.update(full=int((have >= self._per_query).sum()))
        self._count_suspects(stretch, verdict, chosen)
        self._count_overlap(stretch)
        for code in np.unique(verdict[verdict != ALLOWED]).tolist():
            rows = np.flatnonzero(verdict == code)[: EXAMPLES - self._examples[code]]
            self._examples[code] += len(rows)
            self.refused.append(negatives_table(stretch, verdict, rows))

    def _count_suspects(self, stretch: Stretch, verdict: Codes, chosen: Ints) -> None:
        facts = stretch.facts
        within = verdict != CODE["outside_ranks"]
        judged_by_teacher = ~(np.isnan(facts.teacher) | np.isnan(facts.positive_teacher)) & ~facts.is_positive
        above = judged_by_teacher & (facts.teacher > facts.positive_teacher)
        self._counts.update(
            candidates=int(within.sum()),
            judged_relevant=int((within & facts.is_positive).sum()),
            near_duplicates=int((within & facts.is_near).sum()),
            scored=int((within & judged_by_teacher).sum()),
            above=int((within & above).sum()),
            chosen_scored=int(judged_by_teacher[chosen].sum()),
            chosen_above=int(above[chosen].sum()),
        )

    def _count_overlap(self, stretch: Stretch) -> None:
        """Adds every query's Jaccard similarity of each two lists that both have it."""
        lists = range(len(self._sources))
        keys = [stretch.key[stretch.source == source] for source in lists]
        queries = [stretch.query[stretch.source == source] for source in lists]
        sizes = [np.bincount(numbers, minlength=len(stretch.query_ids)) for numbers in queries]
        for one, other in combinations(lists, 2):
            shared = queries[one][np.isin(keys[one], keys[other])]
            common = np.bincount(shared, minlength=len(stretch.query_ids))
            both = (sizes[one] > 0) & (sizes[other] > 0)
            jaccard = common[both] / (sizes[one] + sizes[other] - common)[both]
            self._overlap[one, other] += float(jaccard.sum())
            self._both[one, other] += int(both.sum())

    def report(self, queries: int) -> dict[str, Any]:
        """The report as plain data, for audit.json."""
        counts = self._counts
        return {
            "queries": queries,
            "per_query": self._per_query,
            "negatives": counts["negatives"],
            "queries_short": queries - counts["full"],  # with fewer than asked for
            "queries_without": queries - counts["some"],
            "verdicts": {
                name: {rule: int(count) for rule, count in zip(VERDICTS, by_rule, strict=True) if count}
                for name, by_rule in zip(self._sources, self._verdicts, strict=True)
            },
            "false_negatives": {
                "judged_relevant": _share(counts["judged_relevant"], counts["candidates"]),
                "near_duplicates": _share(counts["near_duplicates"], counts["candidates"]),
                "teacher_above_positive": _share(counts["above"], counts["scored"]),
                "chosen_teacher_above_positive": _share(counts["chosen_above"], counts["chosen_scored"]),
            },
            "overlap": [
                {
                    "lists": [self._sources[one], self._sources[other]],
                    "queries": count,
                    "jaccard": round(self._overlap[one, other] / count, 4),
                }
                for (one, other), count in self._both.items()
                if count
            ],
        }


def _share(count: int, of: int) -> dict[str, Any] | None:
    """A count with what it is a part of; none if there was nothing to count."""
    return {"count": count, "of": of, "share": round(count / of, 6)} if of else None


def as_markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown page."""
    heads = [rule.replace("_", " ") for rule in VERDICTS]
    lines = [
        "# Audit of mined negatives",
        "",
        f"{report['negatives']:,} negatives for {report['queries']:,} queries, {report['per_query']} wanted of each; "
        f"{report['queries_short']:,} queries have fewer, {report['queries_without']:,} none.",
        "",
        f"| list | {' | '.join(heads)} |",
        "| --- |" + " ---: |" * len(heads),
    ]
    for name, counts in report["verdicts"].items():
        lines.append(f"| {name} | {' | '.join(f'{counts.get(rule, 0):,}' for rule in VERDICTS)} |")
    lines += ["", "Likely relevant:"]
    for name, found in report["false_negatives"].items():
        if found:
            lines.append(f"- {name.replace('_', ' ')}: {found['count']:,} of {found['of']:,} ({found['share']:.2%})")
    for pair in report["overlap"]:
        lines.append(f"- lists {pair['lists'][0]} and {pair['lists'][1]}: Jaccard {pair['jaccard']:.3f}")
    return "\n".join(lines) + "\n"
