"""How much each token of each passage matters, in [0, 1]: what weighted masks (ROM, Long et al. 2022) are drawn by.

    tokens shard        token rows
    raw weight          of each use of a word: from counts, from a frozen encoder's attention, or from a file
    scaled              to [0, 1]; a word's weight holds for each of its tokens; specials get 0
    weights/<shard>     doc_id, weights, parallel to the tokens shard's doc_id, ids

The paper says no more than that weights are normalised to [0, 1]: source, scaling and k1, b are unpublished choices.

Attention is what a word receives in the last layer, averaged over heads. A file has JSON lines {"id": …, "vector":
{term: weight}}, as Anserini's JsonVectorCollection; a term is matched with a word of the passage by its text.

    given.parquet, given.json, quarantine.jsonl   the file's vectors by shard, and its bad lines, as in `given`
    range.json                                    lowest and highest weight of known passages
    matched/<shard>.json                          what of a shard's vectors was used
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from midmask.core.arrays import Doubles
from midmask.core.config import file_fingerprint
from midmask.corpora.opening import text_lines
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.queries.config import Sourced
from midmask.queries.given import GivenLine, is_utf8, read_given, sort_by_shard
from midmask.queries.word_statistics import ShardWords, shard_words, token_ids
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.pretrained import found_folder
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_batches, read_table, write_table
from midmask.text.tokens import ROW_GROUP
from midmask.text.vocabulary import Vocabulary, load_tokenizer, speller

BATCH_TOKENS = 2048
"""Padded tokens of one batch. The library gives the attention of all layers, so a batch must be small."""


class AttentionWeigher:
    """Loads an encoder once; on a GPU if there is one. Batches are fixed by the shard alone, so bits are too."""

    def __init__(self, config: "WeighConfig", vocabulary: Vocabulary) -> None:
        self._config, self._pad_id = config, vocabulary.pad_id
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        encoder = BackboneConfig(name=str(config.encoder_folder), dropout=0.0)
        backbone = build_backbone(encoder, vocabulary, seed=0)
        backbone.model.set_attn_implementation("eager")  # the only implementation that returns attention weights
        self._backbone = backbone.to(self._device).eval()

    def weights(self, found: ShardWords, name: str) -> Doubles:
        rows = [torch.from_numpy(row.astype(np.int64)) for row in np.split(found.ids_T, found.lengths_P.cumsum()[:-1])]
        received = [torch.zeros(0)] * len(rows)
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        size = max(1, BATCH_TOKENS // max([1, *map(len, rows)]))
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            for row, attention in zip(batch, self._sum_received([rows[row] for row in batch]), strict=True):
                received[row] = attention
        received_T = torch.cat([torch.zeros(0), *received]).numpy().astype(np.float64)
        return of_words(received_T, found, self._config.attention_pieces)

    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    @torch.inference_mode()
    def _sum_received(self, rows: list[Tensor]) -> list[Tensor]:
        """What each token of each row receives, [length] each."""
        lengths_B = torch.tensor([len(row) for row in rows], device=self._device)
        ids_BL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._pad_id).to(self._device)
        real_BL = torch.arange(ids_BL.shape[1], device=self._device) < lengths_B[:, None]
        attention_BLL = last_attention(self._backbone, ids_BL, real_BL)
        if self._config.attention_from == "cls":
            looked_BL = attention_BLL[:, 0]
        else:
            looked_BL = (attention_BLL * real_BL[..., None]).sum(1) / lengths_B[:, None]
        return [looked_BL[row, : len(ids)].cpu() for row, ids in enumerate(rows)]


def last_attention(backbone: Backbone, ids_BL: Tensor, real_BL: Tensor) -> Tensor:
    """The last layer's attention, mean over its heads; [B, L, L], who looks first.

    Raises:
        UserError: if a row is longer than the encoder takes, or its family does not tell.
    """
    if ids_BL.shape[1] > backbone.max_length:
        raise UserError(
            f"weights.encoder: a row of {ids_BL.shape[1]} tokens, but the encoder takes at most {backbone.max_length}. "
            "Lower tokens.max_length."
        )
    layers = backbone.encoder(input_ids=ids_BL, attention_mask=real_BL.long(), output_attentions=True).attentions
    if not layers:
        raise UserError(
            f"weights.encoder: a {backbone.shape.family} model returns no attention weights; choose a BERT-like one"
        )
    attention: Tensor = layers[-1].float().mean(1)
    return attention


def of_words(received_T: Doubles, found: ShardWords, pieces: Literal["mean", "max", "sum"]) -> Doubles:
    """The attention that the tokens of each word use receive, as one number, [U]."""
    received_C = received_T[found.candidate_T]
    weight_U = np.zeros(len(found.word_U))
    (np.maximum if pieces == "max" else np.add).at(weight_U, found.use_of_C, received_C)
    return weight_U / np.bincount(found.use_of_C, minlength=len(weight_U)) if pieces == "mean" else weight_U


ENDS = re.compile(r"^\W+|\W+$")


def _read_vectors(place: Place, unit: bool) -> Iterator[GivenLine]:
    """The file's vectors, each as a text.

    Args:
        unit: whether weights must lie in [0, 1].

    Raises:
        UserError: if there is no such file; for a weight beyond [0, 1] where that is asked.
    """
    for number, text in text_lines(place, name=f"weights.source = file:{place}", errors="replace"):
        try:
            row = json.loads(text)
            doc_id, vector = str(row["id"]), {str(term): float(weight) for term, weight in row["vector"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            yield GivenLine(number, "", [text], "malformed line")
            continue
        beyond = [term for term, weight in vector.items() if unit and not 0 <= weight <= 1]
        if not is_utf8(doc_id):
            yield GivenLine(number, "", [text], "invalid UTF-8")
        elif not all(map(math.isfinite, vector.values())):
            yield GivenLine(number, doc_id, [text], "weight not finite")
        elif beyond:
            raise UserError(
                f"{place}, line {number}: the weight of {beyond[0]!r} is {vector[beyond[0]]}, not in [0, 1]; set "
                "weights.scaling=passage"
            )
        else:
            yield GivenLine(number, doc_id, [json.dumps(vector)])


def _range(out: Place) -> tuple[float, float]:
    """Of all weights; 0 is among them, since a word without a weight weighs that."""
    lowest, highest = 0.0, 0.0
    for batch in read_batches(out / "given.parquet", columns=["text"]):
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
        shards = [(out / "matched" / name).read_json() for name in (out / "matched").names()]
        totals = {key: sum(shard[key] for shard in shards) for key in shards[0]}
        return {**totals, "file": (out / "given.json").read_json()}


def _normalise(text: str) -> str:
    """Lower case, without punctuation at the ends; a text of punctuation alone as it is."""
    return ENDS.sub("", text.lower()) or text


class WeighConfig(Sourced):
    """Where term weights come from."""

    SECTION = "weights"
    SOURCES = ("idf", "bm25", "attention", "uniform", "file:PATH")

    source: str = Field(
        "idf",
        description="idf or bm25, by the corpus's counts; attention, of a frozen encoder; uniform, all 0, the control; "
        'or file:PATH, JSON lines {"id", "vector": {term: weight}}. Unpublished for ROM',
    )
    scaling: Literal["passage", "corpus", "none"] = Field(
        "passage",
        description="how weights are scaled to [0, 1]: from the lowest and highest of the passage; of the corpus (idf, "
        "bm25: as far as its counts allow; file: of all its weights); none: not scaled. Unpublished for ROM",
    )
    k1: float = Field(0.9, ge=0, le=10, description="bm25: how fast repetitions of a word saturate")
    b: float = Field(0.4, ge=0, le=1, description="bm25: how much a passage's length lowers its weights")
    encoder: str | None = Field(
        None, description="attention: a Hugging Face folder with the tokens' vocabulary; none: the recipe's backbone"
    )
    attention_from: Literal["cls", "all"] = Field(
        "cls", description="attention: received from [CLS], or from all tokens on average, in the last layer"
    )
    attention_pieces: Literal["mean", "max", "sum"] = Field(
        "mean", description="attention: a word's weight from its tokens' weights. Unpublished"
    )

    @model_validator(mode="after")
    def _source_can_be_scaled_so(self) -> Self:
        if self.scaling == "none" and self.kind in ("idf", "bm25"):
            raise ValueError(f"scaling = none, but {self.kind} weights are not in [0, 1]; choose passage or corpus")
        if self.scaling == "corpus" and self.kind == "attention":
            raise ValueError("scaling = corpus: the range of attention weights is not known in advance; choose passage")
        return self

    @property
    def needs_statistics(self) -> bool:
        """Whether the step reads the input `statistics`."""
        return self.kind in ("idf", "bm25")

    @property
    def encoder_folder(self) -> Path:
        """The frozen encoder's folder.

        Raises:
            UserError: if none is named, or it holds no model in safetensors.
        """
        folder = None if self.encoder is None else found_folder(self.encoder)
        if folder is None or not (folder / "model.safetensors").is_file():
            raise UserError(
                f"weights.encoder = {self.encoder}: weights.source=attention needs a trained encoder; name a "
                "model, such as minilm, or a Hugging Face folder, here or as backbone.name"
            )
        return folder

    def content(self) -> dict[str, Any]:
        if self.kind == "attention":
            return {name: file_fingerprint(self.encoder_folder / name) for name in ("config.json", "model.safetensors")}
        return super().content()


class CountWeigher:
    """idf, or BM25's weight of a word in a passage, from the statistics of the corpus.

    idf = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N passages; BM25 = idf * tf (k1 + 1) / (tf + k1 (1 - b +
    b * length / mean length)), lengths in words (Robertson & Zaragoza 2009, the non-negative idf of Lucene).
    """

    def __init__(self, config: WeighConfig, statistics: Artifact) -> None:
        self._table = read_table(statistics.place / "words.parquet").combine_chunks()
        self._config, self._result = config, statistics.result

    def _idf(self, passages: NDArray[np.int64]) -> Doubles:
        total = self._result["passages"]
        idf: Doubles = np.log1p((total - passages + 0.5) / (passages + 0.5))
        return idf

    def weights(self, found: ShardWords, name: str) -> Doubles:
        place = pc.index_in(found.words, value_set=self._table["word"])
        idf_U = self._idf(self._table["passages"].take(place).to_numpy())[found.word_U]
        if self._config.kind == "idf":
            return idf_U
        _, counts, pair_U = found.occurrences()
        tf_U = counts[pair_U].astype(np.float64)
        length_U = np.bincount(found.passage_U, minlength=len(found.lengths_P))[found.passage_U]
        relative_U = length_U / self._result["words_per_passage"]
        k1, b = self._config.k1, self._config.b
        bm25_U: Doubles = idf_U * tf_U * (k1 + 1) / (tf_U + k1 * (1 - b + b * relative_U))
        return bm25_U

    def bounds(self) -> tuple[float, float]:
        """Between which all weights lie: the lowest and highest idf; for BM25, 0 and what endless repetition gives."""
        extremes = np.array([self._result["most_passages"], self._result["least_passages"]])
        lowest, highest = self._idf(extremes).tolist()
        return (lowest, highest) if self._config.kind == "idf" else (0.0, highest * (self._config.k1 + 1))


Weigher = CountWeigher | AttentionWeigher | FileWeigher
"""`weights(found, name)`: the raw weight of each use in the shard of that name, [U]; `bounds()`: of them all."""


def scale_in_passages(weight_U: Doubles, found: ShardWords) -> Doubles:
    """Lowest to 0 and highest to 1 within each passage; all 0 where they are equal."""
    lowest_P, highest_P = np.full((2, len(found.lengths_P)), [[np.inf], [-np.inf]])
    np.minimum.at(lowest_P, found.passage_U, weight_U)
    np.maximum.at(highest_P, found.passage_U, weight_U)
    above_U, range_U = weight_U - lowest_P[found.passage_U], (highest_P - lowest_P)[found.passage_U]
    scaled_U: Doubles = np.divide(above_U, range_U, out=np.zeros_like(weight_U), where=range_U > 0)
    return scaled_U


def scale_weights(config: WeighConfig, weigher: Weigher | None, found: ShardWords, name: str) -> Doubles:
    """The weight of each use of a word in a shard, in [0, 1]; without a weigher, nothing matters more than the rest."""
    if weigher is None:
        return np.zeros(len(found.word_U))
    weight_U = weigher.weights(found, name)
    if config.scaling == "passage":
        return scale_in_passages(weight_U, found)
    if config.scaling == "corpus":
        lowest, highest = weigher.bounds()
        weight_U = (weight_U - lowest) / (highest - lowest) if highest > lowest else np.zeros_like(weight_U)
    return weight_U.clip(0.0, 1.0)


def _make_weigher(config: WeighConfig, inputs: Inputs, out: Place, vocabulary: Vocabulary) -> Weigher | None:
    if config.needs_statistics:
        return CountWeigher(config, inputs["statistics"])
    if config.kind == "attention":
        return AttentionWeigher(config, vocabulary)
    return FileWeigher(inputs["tokens"].place, out) if config.kind == "file" else None


def _begin(config: WeighConfig, inputs: Inputs, out: Place) -> None:
    """Reads a file once, and sorts its vectors into the corpus's shards."""
    if config.kind == "file":
        sort_by_shard(_read_vectors(Place(config.place), config.scaling == "none"), inputs["corpus"].place, out)
        if not (out / "range.json").exists():
            (out / "range.json").write_json(list(_range(out)))


def _worker(config: WeighConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    tokens = inputs["tokens"].place
    vocabulary = Vocabulary.of((tokens / "tokenizer").local())
    weigher = _make_weigher(config, inputs, out, vocabulary)

    def write(name: str) -> None:
        rows = read_table(tokens / "passages" / name, ["doc_id", "ids"])
        words = shard_words(rows["ids"].combine_chunks(), vocabulary)
        weight_T = np.zeros(len(words.candidate_T), np.float32)
        weight_T[words.candidate_T] = scale_weights(config, weigher, words, name)[words.use_of_C]
        offsets = np.concatenate([[0], np.cumsum(words.lengths_P)]).astype(np.int32)
        weights = pa.ListArray.from_arrays(pa.array(offsets), pa.array(weight_T))
        table = pa.table({"doc_id": rows["doc_id"], "weights": weights})
        write_table(table, out / "weights" / name, row_group_size=ROW_GROUP)

    return write


def _finish(config: WeighConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Counts; for a file, also what of it was not used."""
    passages, tokens, total = 0, 0, 0.0
    for name in (out / "weights").names():
        weights = read_table(out / "weights" / name, ["weights"])["weights"].combine_chunks()
        passages, tokens = passages + len(weights), tokens + len(weights.values)
        total += float(weights.values.to_numpy().sum(dtype=np.float64))
    facts = {"passages": passages, "tokens": tokens, "mean_weight": total / max(tokens, 1)}
    return {**facts, **FileWeigher.counts(out)} if config.kind == "file" else facts


WEIGH = Sharded(
    folder="weights",
    over="tokens/passages",
    begin=_begin,
    worker=_worker,
    finish=_finish,
    stays=lambda config: config.kind == "attention",
)
"""The step: tokens, and statistics (idf, bm25) or corpus (file), in; term weights out (weights/)."""
