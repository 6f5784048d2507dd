"""Titles joined to texts by a separator or as pairs: the rows and types of transformers' own tokenizer, read alike by
middle training, fine-tuning, search and sentence-transformers.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from midmask.core.batch import Batch
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.families import type_inputs
from midmask.encoders.model_settings import read_facts
from midmask.encoders.representation import Representation
from midmask.encoders.text_settings import TextForm
from midmask.experiment import steps
from midmask.experiment.steps import UntunedConfig, untuned
from midmask.masking import corrupt
from midmask.objectives import build_objective, pretraining_config
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.sample import full_rows
from midmask.retrieve.text_encoder import TextEncoder
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import TitleJoin, load_tokenizer
from midmask.training.optimiser import TrainConfig
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.encoders.public import opened
from tests.support.objectives.texts import sample_vocabulary
from tests.support.retrieve.collection import write_parts

LONGEST = 24
PADDED = {"padding": True, "return_token_type_ids": True, "return_tensors": "pt"}
FILLER = "lorem ipsum dolor sit amet consetetur sadipscing elitr sed diam nonumy eirmod tempor invidunt ut labore"
DOCS = [
    ("d0", "Red houses", f"Houses of brick. {FILLER}"),
    ("d1", "", "a text without a title"),
    ("d2", f"A very long title {FILLER} {FILLER}", f"and a text {FILLER}"),
    ("d3", "The token [SEP] of BERT", "it ends a [SEP] text"),
    ("d4", "Short", "and short"),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    place = Place(str(tmp_path_factory.mktemp("corpus")))
    return write_parts(
        place, docs=DOCS, queries=[("q0", "red houses"), ("q1", "short")], qrels=[("train", "q0", "d0", 1)]
    )


def tokens_of(corpus: Artifact, place: Place, join: TitleJoin, **fields: Any) -> Artifact:
    config = TokensConfig(
        vocabulary_size=400, max_length=LONGEST, query_length=8, titles=True, title_join=join, **fields
    )
    result = tokenise(config, {"corpus": corpus}, place)
    return Artifact(place, {"fingerprint": join, "result": result, "config": config.model_dump()})


@pytest.fixture(scope="module")
def paired(corpus: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tokens_of(corpus, Place(str(tmp_path_factory.mktemp("pairs"))), "pair")


def rows_of(tokens: Artifact) -> list[list[int]]:
    rows: list[list[int]] = pq.read_table(tokens.place.local() / "passages" / "00000.parquet")["ids"].to_pylist()
    return rows


def reference(tokens: Artifact, truncation: str, prompt: str = "") -> Any:
    """What transformers makes of titles and texts; the separator that a title spells is not its own."""
    tokenizer = AutoTokenizer.from_pretrained(tokens.place.local() / "tokenizer")
    titles = [prompt + title.replace("[SEP]", " ") for _, title, _ in DOCS]
    short = [number for number, title in enumerate(titles) if len(tokenizer(title)["input_ids"]) < LONGEST / 2]
    chosen = short if truncation == "only_second" else range(len(DOCS))
    pairs = [titles[number] for number in chosen], [DOCS[number][2] for number in chosen]
    return chosen, tokenizer(*pairs, truncation=truncation, max_length=LONGEST, **PADDED)


def padded(rows: list[list[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids_BL = torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows])
    return ids_BL, torch.tensor([len(row) for row in rows])


@pytest.mark.parametrize("truncation", ["only_second", "longest_first"])
def test_rows_and_types_are_those_of_transformers_for_pairs(paired: Artifact, truncation: str) -> None:
    chosen, expected = reference(paired, truncation)
    rows, tokenizer = rows_of(paired), load_tokenizer(paired.place.local() / "tokenizer")
    ids_BL, lengths_B = padded([rows[number] for number in chosen], tokenizer.pad_token_id)
    assert len(chosen) == (4 if truncation == "only_second" else 5)
    assert torch.equal(ids_BL, expected["input_ids"])
    types = type_inputs(random_model("bert").config, tokenizer.sep_token_id, ids_BL, lengths_B)
    assert torch.equal(types["token_type_ids"], expected["token_type_ids"])
    assert expected["token_type_ids"].sum(1).min() > 0, "each text is a second one, also where the title is empty"


def test_a_separator_makes_the_same_rows_and_a_prompt_stands_before_the_title(
    corpus: Artifact, paired: Artifact, tmp_path: Path
) -> None:
    assert rows_of(tokens_of(corpus, Place(str(tmp_path / "a")), "separator")) == rows_of(paired)
    prompted = tokens_of(corpus, Place(str(tmp_path / "b")), "pair", passage_prompt="find ")
    _, expected = reference(prompted, "longest_first", "find ")
    rows = rows_of(prompted)
    pairs = zip(expected["input_ids"].tolist(), rows, strict=True)
    assert all(row[: len(real)] == real for row, real in pairs)
    cut = sum(len(row) == LONGEST for row in rows)
    assert prompted.result["cut_share"] == cut / len(DOCS) and 0 < cut < len(DOCS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_states_are_those_of_a_plain_model_given_the_types(variant: str) -> None:
    """In a family without token types, those of the model as it is; the vector of the first token by itself too."""
    model = random_model(variant)
    backbone = Backbone(model, dropout=0.0).eval()
    ids_BL = torch.tensor([[2, 7, 8, 3, 9, 10, 3], [2, 7, 3, 0, 0, 0, 0], [2, 3, 11, 12, 3, 0, 0]])
    lengths_B = torch.tensor([7, 3, 5])
    types_BL = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0] * 7, [0, 0, 1, 1, 1, 0, 0]])
    typed = int(getattr(model.config, "type_vocab_size", 0)) > 1
    given = {"token_type_ids": types_BL} if typed else {}
    mask_BL = (torch.arange(7) < lengths_B[:, None]).long()
    expected_BLD = model.base_model(input_ids=ids_BL, attention_mask=mask_BL, **given).last_hidden_state
    backbone.pair_sep = 3
    assert typed == variant.startswith(("bert", "roberta", "electra", "deberta, with positions"))
    found_BLD, first_BD = backbone.hidden(ids_BL, lengths_B), backbone.first(ids_BL, lengths_B)
    for row, length in enumerate(lengths_B.tolist()):
        torch.testing.assert_close(found_BLD[row, :length], expected_BLD[row, :length], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first_BD, expected_BLD[:, 0], rtol=1e-5, atol=1e-5)
    backbone.pair_sep = None
    assert torch.allclose(backbone.hidden(ids_BL, lengths_B)[0], found_BLD[0], atol=1e-4) != typed


JOINS = [("separator", Representation()), ("pair", Representation(dense="mean", lexical="splade"))]


@pytest.mark.parametrize(("join", "representation"), JOINS)
def test_training_and_search_and_other_libraries_read_the_same(
    corpus: Artifact, tmp_path: Path, join: TitleJoin, representation: Representation
) -> None:
    tokens = tokens_of(corpus, Place(str(tmp_path / "tokens")), join)
    inputs = {"corpus": corpus, "tokens": tokens}
    start = Artifact(Place(str(tmp_path / "start")), {"fingerprint": "start"})
    steps.initial(steps.InitialConfig(backbone=BackboneConfig(dropout=0.0)), inputs, start.place)
    model = AutoModel.from_pretrained(start.place.local() / "model", add_pooling_layer=False).eval()
    with torch.no_grad():  # fresh embeddings of types are too small to matter
        model.embeddings.token_type_embeddings.weight[1] += 1.0
    model.save_pretrained(start.place.local() / "model")
    _, given = reference(tokens, "longest_first")
    if join == "separator":
        given["token_type_ids"].zero_()
    with torch.no_grad():
        expected_BLD = model(**given).last_hidden_state
    lengths_B = given["attention_mask"].sum(1)

    train = TrainConfig(steps=1, batch_size=2, learning_rate=1e-3)
    config = {"backbone": BackboneConfig(name="tiny", dropout=0.0), "train": train}
    objective = pretraining_config({"name": "retromae"})
    lengths = {"representation": representation, "query_length": 8, "passage_length": LONGEST}
    inputs["start"] = start
    tuned = steps.FinetuneConfig(loss=Contrastive.Config(), **lengths, **config)
    middle = steps.PretrainConfig(objective=objective, **config)
    for setup in (steps.pretrain_setup(middle, inputs), steps.finetune_setup(tuned, inputs)):
        backbone, objective_, vocabulary = setup.build()
        found_BLD = backbone.hidden(given["input_ids"], lengths_B)
        assert vocabulary.pairs == (join == "pair") == objective_.vocabulary(torch.device("cpu")).pairs
        torch.testing.assert_close(found_BLD[:, 0], expected_BLD[:, 0], rtol=1e-5, atol=1e-5)

    adopted = Artifact(Place(str(tmp_path / "untuned")), {"fingerprint": "untuned"})
    form = TextForm.of(tokens.record["config"])
    untuned(UntunedConfig(form=form, **lengths), {"start": start, "tokens": tokens}, adopted.place)
    views = TextEncoder(adopted, tokens, "passage").encode([np.array(row) for row in rows_of(tokens)])
    # The dense view: of the search, of the reference, and of sentence-transformers used as README.md says.
    folder, dense_ND = adopted.place.local() / "model", views.dense_ND
    mask_BL1 = given["attention_mask"][..., None]
    mean_BD = (expected_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
    np.testing.assert_allclose(
        dense_ND, mean_BD if representation.dense == "mean" else expected_BLD[:, 0], rtol=1e-4, atol=1e-5
    )
    said = (folder / "README.md").read_text()
    theirs = opened(folder)
    pairs = [(title.replace("[SEP]", " "), text) for _, title, text in DOCS]
    if join == "pair":
        assert "`model.encode([(title, text), …])`" in said
        vectors = theirs.encode(pairs)
    else:
        assert 'f"{title} [SEP] {text}"' in said
        pairs[2] = (" ".join(pairs[2][0].split()[:4]), pairs[2][1])  # one text is cut at its end alone
        vectors = theirs.encode([f"{title} [SEP] {text}" for title, text in pairs])
        dense_ND, vectors = np.delete(dense_ND, 2, 0), np.delete(vectors, 2, 0)
    np.testing.assert_allclose(vectors, dense_ND, rtol=1e-4, atol=1e-5)
    assert read_facts(folder).form.title_join == join


def test_a_corrupted_title_never_ends_earlier(paired: Artifact) -> None:
    """Among few entries a random token is often [SEP]; the tokens that are replaced otherwise are the same."""
    few = sample_vocabulary(12)
    text = full_rows(200, 30, few, seed=3)
    text.ids_BL[:, 12] = few.sep_id
    selected_BL = (text.ids_BL != few.sep_id) & (torch.arange(30) > 0)
    free_BL, kept_BL = corrupt(text, selected_BL, few), corrupt(text, selected_BL, few.joined_by("pair"))
    spurious_BL = selected_BL & (free_BL == few.sep_id)
    assert spurious_BL.sum() > 10
    assert torch.equal(kept_BL == few.sep_id, text.ids_BL == few.sep_id)
    assert torch.equal(kept_BL, torch.where(spurious_BL, text.ids_BL, free_BL))


def test_simlm_s_guesses_leave_titles_their_ends() -> None:
    few = sample_vocabulary(12).joined_by("pair")
    text = full_rows(64, 30, few, seed=3)
    text.ids_BL[:, 9] = few.sep_id
    backbone = build_backbone(BackboneConfig(dropout=0.0), few, seed=0)
    objective = build_objective(pretraining_config({"name": "simlm"}), backbone, few, seed=0)
    drawn = objective.draw(Batch(0, {"passage": text}))
    for rows in (drawn.encoder, drawn.decoder):
        assert torch.equal(rows.ids_BL == few.sep_id, text.ids_BL == few.sep_id)
        assert (rows.ids_BL != text.ids_BL).any()
    assert objective.generator.pair_sep == few.sep_id == backbone.pair_sep
    plain = build_objective(pretraining_config({"name": "simlm"}), backbone, replace(few, pairs=False), seed=0)
    assert (plain.draw(Batch(0, {"passage": text})).decoder.ids_BL == few.sep_id).sum() > 2 * 64
