"""The settings of a search, and the checks of the artifacts that it is given."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field

from midmask.artifact import Artifact
from midmask.errors import UserError
from midmask.identity import added, runtime
from midmask.retrieve.index import IndexFields
from midmask.retrieve.seismic import SEISMIC


class SearchConfig(IndexFields):
    """How a corpus is searched. With another index than Flat, the step `index` builds it."""

    depth: int = Field(100, ge=1, le=100_001, description="passages ranked for each query")
    views: Literal["all", "dense", "lexical"] = Field("all", description="what is scored of what was encoded")
    query_terms: int | None = Field(
        None, ge=1, description="words of a query's lexical view that count, the heaviest; none: all that were encoded"
    )
    passage_terms: int | None = Field(
        None, ge=1, description="the same of a passage; fewer than were encoded need no new encoding"
    )
    width: int | None = added(
        None, "first dimensions of the dense view that count, for an exact search; none: all", ge=1
    )
    actors: int = runtime(1, "on a cluster: processes that each search a part of the corpus", ge=1)
    threads: int = runtime(1, "threads of each process", ge=1)


def check_inputs(config: SearchConfig, inputs: Mapping[str, Artifact], views: Sequence[str]) -> None:
    """Checks that the inputs of a search belong together, and that its settings have a meaning for them.

    Args:
        views: that are scored.

    Raises:
        UserError: naming the setting, or the two artifacts.
    """
    if (terms := _typed_terms(config)) and "lexical" not in views:
        raise UserError(f"{terms}: no lexical view is searched; leave it at none")
    if any((name in inputs) == config.is_exact for name in ("index", "exact")):
        raise UserError(
            f"index = {config.index}: it is built by the step `index`, an input of this one, as is `exact`, the search "
            "that its recall is measured against"
        )
    if not config.is_exact and (advice := misplaced(config, views)):
        raise UserError(f"index = {config.index}: {advice}")
    if config.rescore == 0 and "lexical" in views:
        raise UserError("rescore = 0: scores of an index and of words are not added; set 1 or more")
    if "candidates" in inputs and "late" not in views:
        raise UserError("candidates: all passages are scored by dense and lexical vectors; leave the input out")
    passages, queries = inputs["passages"], inputs["queries"]
    if passages.result["model"] != queries.result["model"]:
        raise UserError(
            f"the index {passages.place} was made by the encoder {passages.result['model']}, the queries "
            f"{queries.place} by {queries.result['model']}; encode both with one model"
        )
    for artifact in (passages, queries):
        if artifact.result["tokens"] != inputs["tokens"].fingerprint:
            raise UserError(
                f"{artifact.place} was encoded from the tokens {artifact.result['tokens']}, not from "
                f"{inputs['tokens'].place} ({inputs['tokens'].fingerprint}); encode these"
            )


def misplaced(config: IndexFields, views: Collection[str]) -> str:
    """Why an approximate index is not of the views that are searched, and what to set; empty if it is."""
    if config.is_of_words:
        return "" if set(views) == {"lexical"} else "words are not all that is searched; leave it at Flat"
    if "dense" in views:
        return ""
    other = f"set {SEISMIC} for words, or " if "lexical" in views else ""
    return f"no dense vectors are searched; {other}leave it at Flat"


def _typed_terms(config: SearchConfig) -> str:
    """How words are cut, as typed; empty if they are not."""
    wanted = {name: getattr(config, name) for name in ("query_terms", "passage_terms")}
    return ", ".join(f"{name} = {terms}" for name, terms in wanted.items() if terms is not None)
