"""What a cluster made, held against one machine with a disk.

Trainings of several workers are held against those of one process by their losses. All else is made again on one
machine from the cluster's weights, and must be equal byte for byte.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from midmask.artifact import RECORD
from tests.chaos.compare import artifacts
from tests.scale.compare import TRAININGS, Equality, TrainingDifference, same_bytes, trainings
from tests.scale.workload import Task, run_here


def held_against(
    done: Iterable[Task], corpus: str, there: Path, alone: Path, folder: Path
) -> tuple[list[TrainingDifference], Equality]:
    """Differences of the trainings, and equality of all else.

    Args:
        there: home whose store has what the cluster's has. alone: home where one machine did the same from the
            beginning. folder: where it does it again, from the cluster's weights.
    """
    again, before = folder / "again", folder / "before-mining"
    take_weights(there, again, mined=True)
    take_weights(there, before, mined=False)
    for task in done:
        for home in (again, before):
            run_here(task, corpus, home)
    return trainings(alone, there), same_bytes(there, [again, before])


def take_weights(there: Path, home: Path, *, mined: bool) -> None:
    """The trainings of a store that was on S3, as they lie on a disk: without the folder of the attempt.

    Args:
        mined: with those that learned from mined negatives; without them, the negatives are mined again.
    """
    for record, folder, _ in artifacts(there):
        content = json.loads(record.read_text())
        if record.parent.parent.name in TRAININGS and (mined or "negatives" not in content["inputs"]):
            own = home / "store" / record.parent.relative_to(there / "store")
            shutil.copytree(folder, own, dirs_exist_ok=True)
            (own / RECORD).write_text(json.dumps({key: one for key, one in content.items() if key != "attempt"}))
