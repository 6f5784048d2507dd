"""Collections of many formats, composed of passages, queries and judgements; and the step that prepares them.

The names below are imported when they are first used: `--help` lists the formats (`formats`) without waiting for Arrow.
"""

from typing import TYPE_CHECKING

from midmask.core.registry import import_when_used

if TYPE_CHECKING:
    from midmask.corpora.assemble import JoinConfig as JoinConfig
    from midmask.corpora.assemble import join as join
    from midmask.corpora.assemble import prepare as prepare
    from midmask.corpora.config import CorpusConfig as CorpusConfig
    from midmask.corpora.reader import corpus_identity as corpus_identity
    from midmask.corpora.reader import judged_splits as judged_splits
    from midmask.corpora.reader import open_corpus as open_corpus
    from midmask.corpora.statistics import statistics_table as statistics_table

_NAMES = {
    "assemble": ("JoinConfig", "join", "prepare"),
    "config": ("CorpusConfig",),
    "reader": ("corpus_identity", "judged_splits", "open_corpus"),
    "statistics": ("statistics_table",),
}

__getattr__ = import_when_used(
    __name__, {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
)
