"""All that reads what others wrote, by name."""

import logging
import os
from pathlib import Path

from tests.fuzz import collections
from tests.fuzz.running import Target


def all_targets(root: Path) -> dict[str, Target]:
    """The targets, with their valid files below `root`. Whatever is heavy is imported and made here, before a process
    is forked.
    """
    os.environ["IR_DATASETS_HOME"] = str(root / "ir_datasets")
    logging.disable(logging.CRITICAL)
    made = [*collections.targets(root)]
    return {target.name: target for target in made}
