"""`midmask.mine`: hard negatives for a corpus's queries, by any model or BM25, as texts and in a file for trainers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from midmask.api.calls import as_changes, check_reach, open_store, read_as, recipe_for_model, runner_in
from midmask.api.corpus import Corpus
from midmask.api.scores import find_split
from midmask.api.train import Run
from midmask.app.job import resolve_storage
from midmask.exchange.training_tuples import TrainingTuple, training_tuples, write_training_tuples
from midmask.experiment.changes import for_each_stage
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from midmask.store.artifact import Artifact
from midmask.store.place import Place

MINING = "stages.0.mine"
"""Section of the recipe `none` with the fields of the mining."""


@dataclass(frozen=True, repr=False)
class Negatives:
    """Hard negatives of a split's queries. Iterating gives a tuple with ids and texts for each query and relevant
    document: query_id, query, positive_id, positive, negative_ids, negatives (the best rank first).
    """

    artifact: Artifact  # the mining in the store
    corpus: Artifact
    titles: bool  # whether documents are written as 'title text', as they were searched

    @property
    def queries(self) -> int:
        """Number of queries that were searched, those without negatives included."""
        return int(self.artifact.result["queries"])

    @property
    def negatives(self) -> int:
        """Number of negatives of all queries."""
        return int(self.artifact.result["negatives"])

    @property
    def folder(self) -> Path:
        """negatives.parquet with ranks and scores, negatives.jsonl.gz, and audit.json about both."""
        return self.artifact.place.local()

    def __iter__(self) -> Iterator[TrainingTuple]:
        return training_tuples(self.artifact, self.corpus, titles=self.titles)

    def save(self, file: str | Path) -> int:
        """Writes JSON lines that sentence-transformers' trainers learn from, {"anchor", "positive", "negative_1", …},
        and returns their number. `datasets.load_dataset("json", data_files=file)` reads them.

        Queries with fewer negatives than were asked for are left out.

        Args:
            file: gzip'd if its name ends in .gz.

        Raises:
            UserError: if no query has so many negatives.
        """
        place = Place(resolve_storage(str(file), Path.cwd()))
        return write_training_tuples(self, self.artifact.record["config"]["per_query"], place)

    def __repr__(self) -> str:
        return f"Negatives({self.negatives:,} for {self.queries:,} queries: {self.artifact.place})"


def mine(
    model: Run | str | Path,
    corpus: Corpus,
    *,
    split: str = "train",
    per_query: int = 30,
    choose: Literal["random", "top"] = "random",
    min_rank: int = 1,
    max_rank: int | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    depth: int = 200,
    max_queries: int | None = None,
    settings: Mapping[str, object] | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Negatives:
    """Ranks all documents for a split's queries and takes hard negatives from the ranks. Documents that are judged
    relevant to the query, in any split, and near-duplicates of them are never taken.

    The names in brackets are those of sentence-transformers' `mine_hard_negatives`, which counts ranks from 0 and
    without the positives.

    Args:
        model: as for `evaluate`.
        corpus: with queries and judgements. Train, dev and test are drawn where it lacks them, as for `train`.
        split: whose queries get negatives.
        per_query: negatives of each query (num_negatives).
        choose: "random" from the ranks below, or the best of them, "top" (sampling_strategy).
        min_rank: best rank that a negative may have, from 1, with the positives (range_min + 1).
        max_rank: worst rank; none: depth (range_max).
        absolute_margin: least difference between the scores of a positive and its negative.
        relative_margin: the same as a share of the positive's score, such as 0.05. With a margin, a query gets
            negatives only if all its positives are within the depth.
        depth: documents ranked for each query.
        max_queries: of a larger split, so many queries, always the same; none: all.
        settings: dotted path -> value, of `corpus`, `tokens` and `stages.0.mine`, such as
            {"stages.0.mine.filters.near_duplicates": 0.7}. They win over the arguments.
        storage, progress: as for `train`. Vectors and ranks are kept: mining again with another margin takes
            seconds, and a call after an interruption goes on.

    Raises:
        UserError: for an unknown model, split or setting, an impossible value, or a corpus without judgements.
    """
    store = open_store(storage)
    fields: dict[str, object] = {
        "split": split,
        "per_query": per_query,
        "choose": choose,
        "min_rank": min_rank,
        "max_rank": max_rank,
        "filters.absolute_margin": absolute_margin,
        "filters.relative_margin": relative_margin,
        "depth": depth,
        "max_queries": max_queries,
    }
    overrides = for_each_stage(RECIPES["none"](), as_changes(settings))
    check_reach(overrides, ("corpus", "tokens", MINING), f"the mining with {model}")
    where = read_as(corpus.in_store(store), overrides)
    folder = model.model if isinstance(model, Run) else model
    changes = {f"{MINING}.{name}": value for name, value in fields.items()} | overrides
    recipe, encoder = recipe_for_model(folder, where, changes)
    config = recipe.stages[0].mine
    find_split(where, config.split)
    planned = plan(recipe)
    step = planned.mining(config, model=encoder)
    runner = runner_in(store, progress=progress)
    mined = runner.compute(step)
    return Negatives(mined, runner.compute(planned.corpus), recipe.tokens.titles)
