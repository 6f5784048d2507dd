"""`midmask.choose`: from documents without labelled queries to a verdict and a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from midmask.api.calls import as_changes, open_store, runner_in
from midmask.api.corpus import Corpus
from midmask.choice.contenders import SCORED, SYSTEMS, Request, budget_seconds, queries_config
from midmask.choice.contest import LocalWorkshop
from midmask.choice.report import verdict_markdown
from midmask.choice.run import choose as hold
from midmask.choice.run import deliver
from midmask.choice.verdict import Verdict
from midmask.errors import UserError


class PrintedVerdict(Verdict):
    """A verdict that prints as the text of its `verdict.md`."""

    def __str__(self) -> str:
        return verdict_markdown(self)


def choose(
    corpus: Corpus,
    *,
    budget: str = "30m",
    systems: Sequence[str] = SYSTEMS,
    representations: Sequence[str] = tuple(SCORED),
    backbone: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Verdict:
    """Which middle training helps on these documents: makes queries from them, trains candidates in rounds within a
    budget, and recommends one with the interval of its gain. Called again after an interruption, it goes on. Judgements
    that the corpus may have are not looked at.

    Args:
        budget: by the clock, such as "30m", "8h" or "1h30m".
        systems: recipes that take part, by priority; variants as "dupmae[decode=ot]".
        representations: of "dense", "splade" and "hybrid".
        backbone: as for `train`; none: "minilm" where its package is installed, else "wiki-mini".
        settings: dotted path -> value, for all systems, and for how queries are made, such as
            {"queries.sources": {"titles": 1, "sentences": 1}}.
        out: folder of verdict.json, verdict.md, verdict.html and model/; none: verdicts/NAME in the working directory.
        storage, progress: as for `train`.

    Raises:
        UserError: for documents from which too few queries can be made, or a budget in which nothing can be measured.
    """
    if not isinstance(corpus, Corpus):
        raise UserError(f"corpus: a {type(corpus).__name__}; midmask.Corpus.from_folder(path) makes a corpus")
    store = open_store(storage)
    overrides = as_changes(settings)
    changes = overrides if backbone is None else {"backbone.name": str(backbone), **overrides}
    request = Request(
        corpus=corpus.in_store(store),
        budget=budget_seconds(budget),
        out=Path(out or Path("verdicts") / corpus.name).expanduser().absolute(),
        queries=queries_config({}, changes, seed),
        systems=tuple(systems),
        representations=tuple(representations),
        changes=changes,
        seed=seed,
        command=f"midmask.choose({corpus!r}, budget={budget!r})",
    )
    verdict = hold(request, LocalWorkshop(runner_in(store, progress=progress)))
    return PrintedVerdict(**vars(deliver(verdict.verdict, verdict.made, request.out)))
