"""Evaluations besides a recipe's own: zero-shot on other collections, and of ranked lists that another tool wrote.

Zero-shot collections are evaluated one by one or as a named group of BEIR's sets. They are read in their official
splits, by the tokenizer of the training, and never trained on. Ranked lists from elsewhere: read_run ─► evaluate, on a
collection as it is read for every other evaluation. Queries that a plan needs and its collections do not have are
refused before anything is computed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from midmask.corpora.config import CorpusConfig
from midmask.corpora.reader import judged_splits
from midmask.errors import UserError, unknown
from midmask.evaluation.groups import GROUPS, folders, group_average, group_corpora
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.graph import Step
from midmask.experiment.plan import Plan
from midmask.experiment.searching import evaluation_step
from midmask.retrieve.ranked import TieRule
from midmask.retrieve.run_file import RunFileConfig, run_digest


def usual_split(there: Sequence[str]) -> str:
    """The split that is evaluated where none is named: dev, else test, else the first; dev if there is none at all."""
    return next((name for name in ("dev", "test", *there) if name in there), "dev")


def refuse_missing_splits(targets: Iterable[Step]) -> None:
    """
    Raises:
        UserError: if a step of the plan evaluates, mines or trains with queries of a split that its collection lacks,
            naming the collection and the splits that it has.
    """
    judged: dict[str, list[str]] = {}
    seen: set[str] = set()
    for target in targets:
        for step in target.upstream():
            corpus = step.inputs.get("corpus")
            if step.fingerprint in seen or corpus is None or not isinstance(corpus.config, CorpusConfig):
                continue
            seen.add(step.fingerprint)
            for split in _splits_of(step):
                if corpus.fingerprint not in judged:
                    judged[corpus.fingerprint] = judged_splits(corpus.config)
                _check_splits(corpus.config, split, judged[corpus.fingerprint], step.name)


def _splits_of(step: Step) -> Iterator[str]:
    if step.kind.reads_train:
        yield "train"
        return
    split, several = getattr(step.config, "split", None), getattr(step.config, "splits", ())
    yield from ([split] if split is not None else several)


def _check_splits(corpus: CorpusConfig, split: str, judged: list[str], step: str) -> None:
    if not judged:
        raise UserError(
            f"corpus {corpus.name}: it has texts alone, without queries and judgements, and the step {step} needs "
            f"queries of the split {split}. Use a corpus that has them, and this one for the middle "
            "training alone (field pretrain_on, flag --pretrain-on)"
        )
    if split not in judged:
        raise unknown(f"split of {corpus.name}", split, judged, hint=f"The step {step} needs its queries.")


SPLIT = "test"
ZERO_SHOT = f"zero-shot, {SPLIT}"
"""Title of a table of zero-shot evaluations."""


def zero_shot_collections(names: Sequence[str]) -> dict[str, CorpusConfig]:
    """Label -> collection, for each of `FORMAT:PLACE` and the sets of each `GROUP:PLACE`.

    Raises:
        UserError: for an unknown format, sets that are not there, or two collections of one label.
    """
    collections: dict[str, CorpusConfig] = {}
    for name in names:
        corpus = CorpusConfig(name=name, splits="official") if _group(name) is None else None
        sets = {corpus.short_name: corpus} if corpus else group_corpora(*name.split(":", 1))
        for label in sets.keys() & collections.keys():
            raise UserError(
                f"--zero-shot {name}: {label!r} is named already ({collections[label].name}); name each set once"
            )
        collections |= sets
    return collections


def _group(name: str) -> str | None:
    kind = name.partition(":")[0]
    return kind if kind in set(GROUPS) else None


def zero_shot(
    steps: Plan, config: EvaluateConfig, names: Sequence[str], *, model: Step | None = None
) -> dict[str, Step]:
    """Label -> the evaluation of a retriever (the last stage's, unless another is given) on that collection."""
    split_config = config.model_copy(update={"split": SPLIT})
    return {
        label: steps.evaluation(split_config, model=model, on=steps.elsewhere(corpus))
        for label, corpus in zero_shot_collections(names).items()
    }


def with_averages(names: Sequence[str], measured: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Label -> measure -> value, with a line for every group: the average that papers print, of the measures that all
    its sets have.
    """
    rows = {label: dict(values) for label, values in measured.items()}
    for name in names:
        if (group := _group(name)) is not None:
            sets = {label: measured[label] for label in folders(group)}
            shared = [measure for measure in next(iter(sets.values())) if all(measure in row for row in sets.values())]
            rows[f"{group}, average"] = {
                measure: group_average(group, {label: values[measure] for label, values in sets.items()})
                for measure in shared
            }
    return rows


EVALUATION_FIELDS = ("split", "depth", "measures", "max_queries")
"""Fields of `EvaluateConfig` that change the evaluation of a run file; all others are of the search."""


def run_file_evaluation(file: Path, corpus: Step, evaluation: EvaluateConfig, ties: TieRule) -> Step:
    """The evaluation of a run file; the same for a file of equal lines elsewhere.

    Args:
        corpus: as `Survey.collection`. evaluation: only `EVALUATION_FIELDS` of it count.

    Raises:
        UserError: if there is no such file.
    """
    config = EvaluateConfig(**{name: getattr(evaluation, name) for name in EVALUATION_FIELDS})
    reading = RunFileConfig(split=config.split, ties=ties, file=str(file))
    ranked = Step("read_run", reading, {"corpus": corpus}, content={"run": run_digest(file)})
    return evaluation_step(ranked, corpus, config)


def run_names(files: Sequence[Path], flags: Sequence[str] = ()) -> list[str]:
    """What the systems of these files are called: as given, else as the files.

    Raises:
        UserError: for another number of names than of files, an empty name, or two files of one name.
    """
    if flags and len(flags) != len(files):
        raise UserError(f"--name is given {len(flags)} times for {len(files)} files; give one for each, in their order")
    if not all(name.strip() for name in flags):
        raise UserError("--name: an empty name; give one that tables can show, or leave the flag out")
    names = list(flags) or [file.name.removesuffix(".gz").removesuffix(".trec") for file in files]
    for at, name in enumerate(names):
        if name in names[:at]:
            first = files[names.index(name)]
            raise UserError(
                f"{first} and {files[at]} would both be called {name!r}; name them: --name ONE --name OTHER, one for "
                "each file"
            )
    return names
