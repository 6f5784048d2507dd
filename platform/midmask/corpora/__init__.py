"""Collections: one file per format, composed of passages, queries and judgements; and the step that prepares them."""

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import Corpus
from midmask.corpora.formats import corpus_identity, judged_splits, open_corpus
from midmask.corpora.joining import JoinConfig, join
from midmask.corpora.statistics import statistics_table

__all__ = [
    "Corpus",
    "CorpusConfig",
    "JoinConfig",
    "corpus_identity",
    "join",
    "judged_splits",
    "open_corpus",
    "prepare",
    "statistics_table",
]
