"""`midmask.import_mteb`: MTEB's result files onto the leaderboard. `midmask.export_mteb`: scores as such files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from midmask.api.comparison import scores_of_one_place
from midmask.api.scores import Scores
from midmask.evaluation.mteb_results import MtebTask, SystemSample, write_results
from midmask.exchange.mteb_files import LANGUAGE
from midmask.identity import fingerprint

if TYPE_CHECKING:  # brings MLflow, which no other name needs
    from midmask.app.mteb_rows import MtebImport, TaskRanking


@dataclass(frozen=True, repr=False)
class MtebRanks:
    """Imported models and their ranks over the tasks that they share. Prints as a sentence and a table."""

    imported: "MtebImport"
    ranking: "TaskRanking"

    def __str__(self) -> str:
        from midmask.app.mteb_text import import_sentence, rank_table

        return f"{import_sentence(self.imported)}\n\n{rank_table(self.ranking)}"

    def __repr__(self) -> str:
        return str(self)


def import_mteb(*places: str | Path, tracking_uri: str | None = None) -> MtebRanks:
    """Puts results of MTEB onto the leaderboard, a row for each model; what is there already stays as it is.

    Args:
        places: result files, or folders with such files at any depth, as mteb's own cache.
        tracking_uri: the store of tracked runs; none: as for jobs, MLFLOW_TRACKING_URI, else `mlflow.db` in the
            project.

    Raises:
        UserError: for a place that is not there, a damaged file, or one of another layout; nothing is imported then.
    """
    from midmask.app.job import INSIDE, home
    from midmask.app.mteb_rows import import_results, rank_models
    from midmask.tracking import resolve_tracking_uri

    here = home(Path.cwd() / INSIDE)
    found = import_results([Path(place) for place in places], resolve_tracking_uri(tracking_uri, here), here)
    return MtebRanks(found, rank_models(found.models))


def export_mteb(
    scores: Sequence[Scores] | Mapping[str, Scores | Sequence[Scores]],
    folder: str | Path,
    *,
    task: str | None = None,
    language: str = LANGUAGE,
) -> dict[str, Path]:
    """Writes FOLDER/MODEL/REVISION/TASK.json for each system, with its rank among them and the ranks that tests allow.

    Args:
        scores: as for `compare`.
        task: what MTEB calls the collection; none: its name here.
        language: of the collection, in MTEB's code.

    Returns:
        Label -> the file.

    Raises:
        UserError: for no scores, two systems of one label, scores of different corpora or splits or of different
            queries, and scores without nDCG@10, which is MTEB's main score.
    """
    systems = scores_of_one_place(scores, "export_mteb")
    first = next(one for several in systems.values() for one in several)
    revision = first.artifact.record["inputs"]["corpus"]
    measured = {
        label: SystemSample([one.table for one in several], fingerprint([one.artifact.fingerprint for one in several]))
        for label, several in systems.items()
    }
    return write_results(measured, MtebTask(task or first.corpus, first.split, revision, language), Path(folder))
