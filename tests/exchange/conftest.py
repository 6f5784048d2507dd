"""A collection, and a run on it."""

from tests.support.api.toy import corpus, run, store  # noqa: F401  (fixtures)
