"""Collections of many formats, composed of passages, queries and judgements; and the step that prepares them.

The names below are imported when they are first used: `--help` lists the formats (`formats`) without waiting for Arrow.
"""

from typing import TYPE_CHECKING

from midmask.core.registry import import_when_used

if TYPE_CHECKING:
    from midmask.corpora.assemble import JoinConfig, join, prepare
    from midmask.corpora.config import CorpusConfig
    from midmask.corpora.corpus import CorpusPieces
    from midmask.corpora.reader import corpus_identity, judged_splits, open_corpus
    from midmask.corpora.statistics import statistics_table

_MODULES = {
    "CorpusConfig": "config",
    "CorpusPieces": "corpus",
    "JoinConfig": "assemble",
    "corpus_identity": "reader",
    "join": "assemble",
    "judged_splits": "reader",
    "open_corpus": "reader",
    "prepare": "assemble",
    "statistics_table": "statistics",
}

__all__ = [
    "CorpusConfig",
    "CorpusPieces",
    "JoinConfig",
    "corpus_identity",
    "join",
    "judged_splits",
    "open_corpus",
    "prepare",
    "statistics_table",
]


__getattr__ = import_when_used(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
