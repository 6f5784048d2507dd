"""Queries that a plan needs and its collections do not have: refused before anything is computed."""

from collections.abc import Iterable, Iterator, Sequence

from midmask.corpora import CorpusConfig, judged_splits
from midmask.errors import UserError, unknown
from midmask.experiment.step import Step


def usual_split(there: Sequence[str]) -> str:
    """The split that is evaluated where none is named: dev, else test, else the first; dev if there is none at all."""
    return next((name for name in ("dev", "test", *there) if name in there), "dev")


def refuse_missing_splits(targets: Iterable[Step]) -> None:
    """
    Raises:
        UserError: if a step of the plan evaluates, mines or trains with queries of a split that its collection lacks,
            naming the collection and the splits that it has.
    """
    known: dict[str, list[str]] = {}
    seen: set[str] = set()
    for target in targets:
        for step in target.upstream():
            corpus = step.inputs.get("corpus")
            own_queries = "asked" not in step.inputs
            if step.fingerprint in seen or corpus is None or not isinstance(corpus.config, CorpusConfig):
                continue
            seen.add(step.fingerprint)
            for split in _splits_of(step) if own_queries else ():
                if corpus.fingerprint not in known:
                    known[corpus.fingerprint] = judged_splits(corpus.config)
                _check(corpus.config, split, known[corpus.fingerprint], step.name)


def _splits_of(step: Step) -> Iterator[str]:
    if step.kind.reads_train:
        yield "train"
        return
    one, several = getattr(step.config, "split", None), getattr(step.config, "splits", ())
    yield from ([one] if one is not None else several)


def _check(corpus: CorpusConfig, split: str, known: list[str], step: str) -> None:
    if not known:
        raise UserError(
            f"corpus {corpus.name}: it has texts alone, without queries and judgements, and the step {step} needs "
            f"queries of the split {split}. Use a corpus that has them, and this one for the middle "
            "training alone (field pretrain_on, flag --pretrain-on)"
        )
    if split not in known:
        raise unknown(f"split of {corpus.name}", split, known, hint=f"The step {step} needs its queries.")
