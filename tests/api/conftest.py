"""A collection, and a run on it with fine-tuning and one without."""

from tests.support.api.toy import corpus, run, store, untuned  # noqa: F401  (fixtures)
