"""All that reads what others wrote, by name."""

import logging
import os
import warnings
from pathlib import Path

os.environ |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}

from tests.fuzz import answers, collections, folders, lists, settings
from tests.fuzz.running import Target


def all_targets(root: Path) -> dict[str, Target]:
    """The targets, with their valid files below `root`. Whatever is heavy is imported and made here, before a process
    is forked.
    """
    os.environ["IR_DATASETS_HOME"] = str(root / "ir_datasets")
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    made = [target for kind in (collections, lists, folders, settings, answers) for target in kind.targets(root)]
    return {target.name: target for target in made}
