"""Every view of a representation as it is encoded and searched, against transformers one text at a time in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from transformers import AutoModelForMaskedLM

from midmask.artifact import Place
from midmask.encoders.experts import put_query_expert
from midmask.encoders.pooling import Side
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.views import read_views
from midmask.vocabulary import Vocabulary
from tests.support.retrieve.collection import made, write_bi_encoder

PASSAGES = EncodeConfig(side="passages")
QUERIES = EncodeConfig(side="queries", split="dev")

KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "cls": ("dense", {}, {}),
    "mean, projected": ("dense", {"dense": "mean", "width": 12, "normalise": True}, {}),
    "splade": ("lexical", {"dense": None, "lexical": "splade", "specials": False, "passage_terms": 20}, {}),
    "logits": ("hybrid", {"width": 16, "lexical": "logits", "passage_terms": 24}, {}),
    "experts": ("hybrid", {"lexical": "splade", "query_terms": 6}, {"experts": "ffn"}),
}
"""How its lists are called, representation, and backbone of each."""


class Reference:
    """The views of one text in float64, written from the definitions."""

    def __init__(self, folder: Path, representation: Representation, vocabulary: Vocabulary, side: Side) -> None:
        self.representation, self.side = representation, side
        self.special_V = vocabulary.special_V.numpy()
        if representation.lexical is None:  # of a dense model the encoder alone is kept
            from transformers import AutoModel

            self.model = AutoModel.from_pretrained(folder)
        else:
            self.model = AutoModelForMaskedLM.from_pretrained(folder)
        if side == "query":
            put_query_expert(self.model.base_model, folder)
        self.model.double().eval()
        file = folder / "2_Dense" / "model.safetensors"
        self.projection = safetensors.torch.load_file(file)["linear.weight"].double() if file.exists() else None

    @torch.no_grad()
    def __call__(self, row: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Dense [D] and lexical [V]; zeros of length 1 where a view is missing."""
        wanted = self.representation
        output = self.model(input_ids=torch.tensor([row]), output_hidden_states=True)
        hidden_LD = output.hidden_states[-1][0]
        dense_D, lexical_V = torch.zeros(1), np.zeros(1)
        if wanted.dense is not None:
            dense_D = hidden_LD[0] if wanted.dense == "cls" else hidden_LD.mean(0)
            dense_D = dense_D if self.projection is None else self.projection @ dense_D
            dense_D = dense_D / dense_D.norm() if wanted.normalise else dense_D
        if wanted.lexical is not None:
            pooled = [at for at, word in enumerate(row) if wanted.specials or not self.special_V[word]]
            lexical_V = output.logits[0][pooled].max(0).values.numpy()
            lexical_V = np.log1p(np.maximum(lexical_V, 0)) if wanted.lexical == "splade" else lexical_V
            terms = wanted.terms(self.side) or len(lexical_V)
            least = np.sort(lexical_V)[-terms]
            lexical_V = np.where(lexical_V >= least, lexical_V, 0)
        return dense_D.numpy(), lexical_V


@pytest.mark.parametrize("kind", KINDS)
def test_views_and_ranking_are_those_of_the_definitions(inputs, tmp_path: Path, kind: str):
    source, chosen, backbone = KINDS[kind]
    representation = Representation(**chosen)
    model = write_bi_encoder(Place(str(tmp_path / "m")), inputs["tokens"], representation, **backbone)
    given = {**inputs, "model": model}
    sides = {"passages": PASSAGES, "queries": QUERIES}
    vectors = {name: made(encode, config, given, Place(str(tmp_path / name))) for name, config in sides.items()}
    result = search(SearchConfig(depth=15), {**vectors, "tokens": inputs["tokens"]}, Place(str(tmp_path / "found")))
    assert result["source"].split("-")[0] == source

    vocabulary = Vocabulary.of(inputs["tokens"].place.local() / "tokenizer")
    folder = tmp_path / "m" / "model"
    tokens = inputs["tokens"].place
    files = [pq.read_table((tokens / "passages" / name).uri) for name in (tokens / "passages").names()]
    tables = {"passages": pa.concat_tables(files), "queries": pq.read_table(tmp_path / "queries" / "selection.parquet")}
    truth = {}
    for name, side in (("passages", "passage"), ("queries", "query")):
        reference = Reference(folder, representation, vocabulary, side)
        rows = [reference(row) for row in tables[name]["ids"].to_pylist()]
        truth[name] = (np.stack([dense for dense, _ in rows]), np.stack([lexical for _, lexical in rows]))
        views = read_views(vectors[name].place, "00000", vectors[name].result["views"])
        if views.dense_ND is not None:
            np.testing.assert_allclose(views.dense_ND, truth[name][0][: len(views.dense_ND)], atol=2e-5)
        if views.lexical is not None:
            found = np.zeros((len(views.lexical), views.lexical.width))
            for number in range(len(found)):
                terms, weights = views.lexical.row(number)
                found[number, terms] = weights
            np.testing.assert_allclose(found, truth[name][1][: len(found)], atol=2e-5)
    scores_QN = sum(left @ right.T for left, right in zip(truth["queries"], truth["passages"], strict=True))
    listed = ranked.read(Place(str(tmp_path / "found" / "ranked" / "dev.parquet"))).to_pylist()
    doc_ids = tables["passages"]["doc_id"].to_pylist()
    for query, query_id in enumerate(tables["queries"]["query_id"].to_pylist()):
        own = [row for row in listed if row["query_id"] == query_id]
        np.testing.assert_allclose([row["score"] for row in own], np.sort(scores_QN[query])[::-1][:15], atol=2e-3)
        of_doc = dict(zip(doc_ids, scores_QN[query].tolist(), strict=True))
        np.testing.assert_allclose([row["score"] for row in own], [of_doc[row["doc_id"]] for row in own], atol=2e-3)


def test_fewer_words_are_searched_without_encoding_again(inputs, tmp_path: Path):
    model = write_bi_encoder(Place(str(tmp_path / "m")), inputs["tokens"], Representation(lexical="splade"))
    given, lists = {**inputs, "model": model}, []
    for kept, cut in (({"terms": 8}, {}), ({}, {"query_terms": 8, "passage_terms": 8})):
        root, sides = Place(str(tmp_path / f"{len(lists)}")), {"passages": PASSAGES, "queries": QUERIES}
        vectors = {name: made(encode, side.model_copy(update=kept), given, root / name) for name, side in sides.items()}
        found = search(SearchConfig(depth=9, **cut), {**vectors, "tokens": inputs["tokens"]}, root / "found")
        lists.append(((root / "found" / "ranked" / "dev.parquet").read(), found["bytes_per_passage"]))
        encoded_bytes = vectors["passages"].result["bytes_per_passage"]
    assert lists[0] == lists[1] and lists[1][1] < encoded_bytes
    only = SearchConfig(depth=9, views="dense")
    found = search(only, {**vectors, "tokens": inputs["tokens"]}, root / "dense")
    assert found["bytes_per_passage"] == round((vectors["passages"].place / "dense").size() / 300, 2)
    with pytest.raises(UserError, match=r"query_terms = 8: no lexical view is searched"):
        config = SearchConfig(depth=9, query_terms=8, views="dense")
        search(config, {**vectors, "tokens": inputs["tokens"]}, Place(str(tmp_path / "none")))
