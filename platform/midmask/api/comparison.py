"""`midmask.compare`: systems side by side, with what differs significantly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midmask.api.scores import Scores
from midmask.errors import UserError
from midmask.evaluation.rendering import as_csv, as_html, as_latex, as_markdown
from midmask.evaluation.statistics.significance import Correction
from midmask.evaluation.tables import ComparisonProtocol, ResultTable, by_measure, tabulate


@dataclass(frozen=True, repr=False)
class Table:
    """Systems and their measures. Prints as Markdown, and as HTML in a notebook; `result` holds the numbers."""

    result: ResultTable

    def markdown(self) -> str:
        """The table and its caption, which says what bold and superscripts mean."""
        return as_markdown(self.result)

    def latex(self) -> str:
        """A `table` environment for booktabs."""
        return as_latex(self.result)

    def csv(self) -> str:
        """One line for each system and measure, with numbers in full."""
        return as_csv(self.result)

    def __str__(self) -> str:
        return self.markdown()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self.result)


def compare(
    scores: Sequence[Scores] | Mapping[str, Scores | Sequence[Scores]],
    *,
    measures: Sequence[str] | None = None,
    baseline: str | None = None,
    correction: Correction | None = "bonferroni",
) -> Table:
    """A row for each system, a column for each measure, all on the same queries, each column tested on its own.

    Args:
        scores: of several systems; or label -> scores, or label -> scores of one system with several seeds.
        measures: the columns; none: those that all scores have.
        baseline: label that the others are tested against; none: all pairs.
        correction: for the comparisons of a column, paired t-tests over queries: "bonferroni", "holm" or none.

    Raises:
        UserError: for no scores, two systems of one label, scores of different corpora or splits, or an unknown
            measure, baseline or correction.
    """
    systems = _by_label(scores)
    all_scores = [score for several in systems.values() for score in several]
    places = dict.fromkeys((score.corpus, score.split) for score in all_scores)
    if not places:
        raise UserError("compare: no scores; give those of at least one system")
    if len(places) > 1:
        (corpus, split), (other, other_split), *_ = places
        raise UserError(f"compare: {corpus} {split} and {other} {other_split}; give scores of one corpus and split")
    shared = [name for name in all_scores[0].measures if all(name in score.measures for score in all_scores)]
    chosen = list(shared if measures is None else measures)
    if not chosen:
        raise UserError("compare: the scores share no measure; evaluate all systems with the same measures=[…]")
    per_query = {label: [score.table for score in several] for label, several in systems.items()}
    how = ComparisonProtocol(baseline=baseline, correction=correction)
    return Table(tabulate(by_measure(per_query, chosen), how))


def _by_label(scores: Sequence[Scores] | Mapping[str, Scores | Sequence[Scores]]) -> dict[str, list[Scores]]:
    """Label -> scores, one for each seed."""
    if isinstance(scores, Mapping):
        return {label: [entry] if isinstance(entry, Scores) else list(entry) for label, entry in scores.items()}
    labels = [score.system for score in scores]
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise UserError(
            f"compare: two systems are called {repeated[0]!r}; label them: compare({{'first': …, 'second': …}})"
        )
    return {score.system: [score] for score in scores}
