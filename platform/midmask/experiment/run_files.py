"""The evaluation of ranked lists that another tool has written: read_run ─► evaluate, on a collection as it is read for
every other evaluation.
"""

from collections.abc import Sequence
from pathlib import Path

from midmask.artifact import Place
from midmask.corpora import CorpusConfig, corpus_identity
from midmask.errors import UserError
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.searching import evaluation_step
from midmask.experiment.step import Step
from midmask.retrieve.ranked import TAG, TieRule, first_tag
from midmask.retrieve.run_file import RunFileConfig, run_digest

FIELDS = ("split", "depth", "measures", "max_queries")
"""Fields of `EvaluateConfig` that change the evaluation of a run file; all others are of the search."""


def collection_step(corpus: CorpusConfig) -> Step:
    """The collection, as the step that every plan on it has.

    Raises:
        UserError: if the collection is not there.
    """
    return Step("prepare", corpus, content=corpus_identity(corpus))


def run_file_evaluation(
    file: Path, corpus: Step, wanted: EvaluateConfig, ties: TieRule, *, leave_out_copies: bool = False
) -> Step:
    """The evaluation of a run file; the same for a file of equal lines elsewhere.

    Args:
        corpus: as `collection_step`. wanted: only `FIELDS` of it count. leave_out_copies: as of `RunFileConfig`.

    Raises:
        UserError: if there is no such file.
    """
    config = EvaluateConfig(**{name: getattr(wanted, name) for name in FIELDS})
    reading = RunFileConfig(split=config.split, ties=ties, leave_out_copies=leave_out_copies, file=str(file))
    ranked = Step("read_run", reading, {"corpus": corpus}, content={"run": run_digest(file)})
    return evaluation_step(ranked, corpus, config)


def run_names(files: Sequence[Path], given: Sequence[str] = ()) -> list[str]:
    """What the systems of these files are called: as given, else the tag in the file, unless midmask wrote it, else the
    file's name.

    Raises:
        UserError: for another number of names than of files, an empty name, two files of one name, or a file whose
            first line is no line of a run.
    """
    if given and len(given) != len(files):
        raise UserError(f"--name is given {len(given)} times for {len(files)} files; give one for each, in their order")
    if not all(name.strip() for name in given):
        raise UserError("--name: an empty name; give one that tables can show, or leave the flag out")
    names = list(given) or [_own_name(file) for file in files]
    for at, name in enumerate(names):
        if name in names[:at]:
            first = files[names.index(name)]
            raise UserError(
                f"{first} and {files[at]} would both be called {name!r}; name them: --name ONE --name OTHER, one for "
                "each file"
            )
    return names


def _own_name(file: Path) -> str:
    tag = first_tag(Place(str(file)))
    return file.name.removesuffix(".gz").removesuffix(".trec") if tag == TAG else tag
