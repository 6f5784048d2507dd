"""`midmask.export_mteb`: scores as MTEB's result files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from midmask.api.comparison import scores_of_one_place
from midmask.api.scores import Scores
from midmask.evaluation.mteb_results import MtebTask, SystemSample, write_results
from midmask.exchange.mteb_files import LANGUAGE
from midmask.identity import fingerprint


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
