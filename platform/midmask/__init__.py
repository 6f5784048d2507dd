"""midmask: middle training of encoders for retrieval, every method under one protocol.

    corpus = midmask.Corpus.from_texts(texts)
    run = midmask.train("retromae", corpus)
    run.search("a query")

The names below are imported when they are first used (docs/python.md): importing this package costs nothing and reaches
no network. It only sets the switches that keep the libraries below it quiet and small; a value that the user has set
already is left as it is.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midmask.api.calls import list_protocols, list_recipes, settings
    from midmask.api.choose import choose
    from midmask.api.comparison import Table, compare
    from midmask.api.corpus import Corpus
    from midmask.api.mine import Negatives, mine
    from midmask.api.scores import Scores, evaluate
    from midmask.api.train import Run, train
    from midmask.choice.verdict import Verdict
    from midmask.errors import UserError
    from midmask.retrieve.searcher import Hit

__version__ = "0.1.0"

_HOMES = {
    "Corpus": "api.corpus",
    "Hit": "retrieve.searcher",
    "Negatives": "api.mine",
    "Run": "api.train",
    "Scores": "api.scores",
    "Table": "api.comparison",
    "UserError": "errors",
    "Verdict": "choice.verdict",
    "choose": "api.choose",
    "compare": "api.comparison",
    "evaluate": "api.scores",
    "list_protocols": "api.calls",
    "list_recipes": "api.calls",
    "mine": "api.mine",
    "settings": "api.calls",
    "train": "api.train",
}
"""Public name -> the module that it is imported from. No module of this package may bear one of these names."""

__all__ = [
    "Corpus",
    "Hit",
    "Negatives",
    "Run",
    "Scores",
    "Table",
    "UserError",
    "Verdict",
    "choose",
    "compare",
    "evaluate",
    "list_protocols",
    "list_recipes",
    "mine",
    "settings",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "DO_NOT_TRACK": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_THRESHOLD_S": "10",
    "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
}
"""RAY_AIR_NEW_OUTPUT=0: Ray Tune reports by its older output, which `verbose=0` silences; the newer one prints a table
and two commands whatever `verbose` says. Both log the errors of trials. TUNE_WARN_THRESHOLD_S: seconds that Tune's
bookkeeping may take without a warning; by default 0.5, which a busy machine exceeds all the time."""

SMALL_CACHES = {"LRU_CACHE_CAPACITY": "16", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16"}
"""Compiled products that torch keeps on a processor, one for each shape (1,024 by default, in two caches). Rows of
other lengths in every batch fill them with gigabytes, which make a step no faster.
"""

for _name, _value in {**QUIET, **SMALL_CACHES}.items():
    os.environ.setdefault(_name, _value)
