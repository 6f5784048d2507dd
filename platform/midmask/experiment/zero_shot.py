"""Zero-shot evaluation: a retriever on collections that it was not trained on, one by one or as a named group of BEIR's
sets. They are read in their official splits, by the tokenizer of the training, and never trained on.
"""

from collections.abc import Mapping, Sequence

from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.evaluation.groups import GROUPS, folders, group_average, group_corpora
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import Plan
from midmask.experiment.step import Step

SPLIT = "test"


def collections(names: Sequence[str]) -> dict[str, CorpusConfig]:
    """Label -> collection, for each of `FORMAT:PLACE` and the sets of each `GROUP:PLACE`.

    Raises:
        UserError: for an unknown format, sets that are not there, or two collections of one label.
    """
    found: dict[str, CorpusConfig] = {}
    for name in names:
        corpus = CorpusConfig(name=name, splits="official") if _group(name) is None else None
        own = {corpus.short_name: corpus} if corpus else group_corpora(*name.split(":", 1))
        for label in own.keys() & found.keys():
            raise UserError(f"--zero-shot {name}: {label!r} is named already ({found[label].name}); name each set once")
        found |= own
    return found


def _group(name: str) -> str | None:
    kind = name.partition(":")[0]
    return kind if kind in set(GROUPS) else None


def zero_shot(
    steps: Plan, config: EvaluateConfig, names: Sequence[str], *, model: Step | None = None
) -> dict[str, Step]:
    """Label -> the evaluation of a retriever (the last stage's, unless another is given) on that collection."""
    wanted = config.model_copy(update={"split": SPLIT})
    return {
        label: steps.evaluation(wanted, model=model, on=steps.elsewhere(corpus))
        for label, corpus in collections(names).items()
    }


def with_averages(names: Sequence[str], measured: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Label -> measure -> value, with a line for every group: the average that papers print, of the measures that all
    its sets have.
    """
    rows = {label: dict(values) for label, values in measured.items()}
    for name in names:
        if (group := _group(name)) is not None:
            own = {label: measured[label] for label in folders(group)}
            shared = [measure for measure in next(iter(own.values())) if all(measure in row for row in own.values())]
            rows[f"{group}, average"] = {
                measure: group_average(group, {label: values[measure] for label, values in own.items()})
                for measure in shared
            }
    return rows
