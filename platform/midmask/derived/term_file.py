"""Term weights from a file: JSON lines {"id": …, "vector": {term: weight}}, as Anserini's JsonVectorCollection.

    given.parquet, given.json, quarantine.jsonl   the file's vectors by shard, and its bad lines, as in `given`
    range.json                                    lowest and highest weight of known passages
    matched/<shard>.json                          what of a shard's vectors was used

A term is matched with a word of the passage by its text: lower case, without punctuation at its ends.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.derived.given import GivenLine, is_utf8, read_given, sort_by_shard
from midmask.derived.words import ShardWords, token_ids
from midmask.errors import UserError
from midmask.retrieve.lines import text_lines
from midmask.vocabulary import load_tokenizer, speller

ENDS = re.compile(r"^\W+|\W+$")


def sort_vectors(path: str, corpus: Place, out: Place, *, unit: bool) -> None:
    """Reads the file once and sorts its vectors into the corpus's shards.

    Args:
        unit: whether weights must lie in [0, 1].

    Raises:
        UserError: if there is no such file; for a weight beyond [0, 1] where that is asked.
    """
    sort_by_shard(_read_vectors(Place(path), unit=unit), corpus, out)
    if not (out / "range.json").exists():
        (out / "range.json").write_json(list(_range(out)))


def _read_vectors(place: Place, *, unit: bool) -> Iterator[GivenLine]:
    for number, text in text_lines(place, name=f"weights.source = file:{place}", errors="replace", form="objects"):
        try:
            row = json.loads(text)
            doc_id, vector = str(row["id"]), {str(term): float(weight) for term, weight in row["vector"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            yield GivenLine(number, "", [text], "malformed line")
            continue
        if not is_utf8(doc_id):
            yield GivenLine(number, "", [text], "invalid UTF-8")
            continue
        if not all(map(math.isfinite, vector.values())):
            yield GivenLine(number, doc_id, [text], "weight not finite")
            continue
        if unit and (beyond := [term for term, weight in vector.items() if not 0 <= weight <= 1]):
            raise UserError(
                f"{place}, line {number}: the weight of {beyond[0]!r} is {vector[beyond[0]]}, not in [0, 1]; set "
                "weights.scaling=passage"
            )
        yield GivenLine(number, doc_id, [json.dumps(vector)])


def _range(out: Place) -> tuple[float, float]:
    """Of all weights; 0 is among them, since a word without a weight weighs that."""
    lowest, highest = 0.0, 0.0
    with (out / "given.parquet").reading() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(columns=["text"]):
            for text in batch["text"].to_pylist():
                weights = json.loads(text).values()
                lowest, highest = min([lowest, *weights]), max([highest, *weights])
    return lowest, highest


class FileWeigher:
    """The weight of a word is its term's; 0 if the passage has no such term, or no vector. Of two vectors for one
    passage the later one holds where both name a term.
    """

    def __init__(self, tokens: Place, out: Place) -> None:
        self._tokenizer = load_tokenizer((tokens / "tokenizer").local())
        self._spell = speller(self._tokenizer)
        self._numbers = {name: number for number, name in enumerate((tokens / "passages").names())}
        self._out = out

    def weights(self, found: ShardWords, name: str) -> NDArray[np.float64]:
        """Also writes the weights that were used to `matched/`."""
        given = read_given(self._out, self._numbers[name], 0, len(found.lengths_P))
        terms = [_normalise(self._spell_word(word)) for word in found.words.to_pylist()]
        bounds = np.searchsorted(found.passage_U, np.arange(len(given) + 1)).tolist()
        weight_U = np.zeros(len(found.word_U))
        facts = {"passages_without_weights": 0, "terms": 0, "unknown_terms": 0}
        for passage, texts in enumerate(given):
            vector = {_normalise(term): weight for text in texts for term, weight in json.loads(text).items()}
            here = [terms[word] for word in found.word_U[bounds[passage] : bounds[passage + 1]].tolist()]
            weight_U[bounds[passage] : bounds[passage + 1]] = [vector.get(term, 0.0) for term in here]
            facts["passages_without_weights"] += not texts
            facts["terms"] += len(vector)
            facts["unknown_terms"] += len(vector.keys() - set(here))
        (self._out / "matched" / f"{name}.json").write_json(facts)
        return weight_U

    def bounds(self) -> tuple[float, float]:
        lowest, highest = (self._out / "range.json").read_json()
        return float(lowest), float(highest)

    def _spell_word(self, word: bytes) -> str:
        return self._spell(self._tokenizer.convert_ids_to_tokens(token_ids(word)))

    @staticmethod
    def counts(out: Place) -> dict[str, Any]:
        """Over all shards: passages without a vector, terms, those that are no word of their passage, bad lines."""
        names = (out / "matched").names()
        shards = [(out / "matched" / name).read_json() for name in names]
        return {
            **{key: sum(shard[key] for shard in shards) for key in shards[0]},
            "file": (out / "given.json").read_json(),
        }


def _normalise(text: str) -> str:
    """Lower case, without punctuation at the ends; a text of punctuation alone as it is."""
    return ENDS.sub("", text.lower()) or text
