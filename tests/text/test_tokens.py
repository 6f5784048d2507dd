"""Tokens: the trained vocabulary, the shards, and what masks are told of WordPiece, byte-level and SentencePiece.
Titles joined to texts by a separator or as pairs: the rows and types of transformers' own tokenizer, read alike by
middle training, fine-tuning, search and sentence-transformers.
"""

import contextlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bm25s.stopwords import STOPWORDS_EN_PLUS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from midmask.core.batch import Batch
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.families import type_inputs
from midmask.encoders.model_settings import TextForm, read_facts
from midmask.encoders.representation import Representation
from midmask.experiment import steps
from midmask.experiment.steps import InitialConfig, UntunedConfig, initial, untuned
from midmask.masking.corruption import corrupt
from midmask.objectives import build_objective, pretraining_config
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.sample import full_rows
from midmask.retrieve.text_encoder import TextEncoder
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import STOP_WORDS, TitleJoin, Vocabulary, load_tokenizer, save_tokenizer, speller
from midmask.training.optimiser import TrainConfig
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.encoders.public import opened
from tests.support.objectives.texts import sample_vocabulary
from tests.support.retrieve.collection import write_parts

TEXTS = [f"Unbelievable masking of passages number {i} improves the retrieval of documents." for i in range(60)]


@pytest.fixture
def corpus(tmp_path):
    place = Place(str(tmp_path / "corpus"))
    for shard, rows in enumerate((TEXTS[:40], TEXTS[40:])):
        ids = [f"d{shard}-{i}" for i in range(len(rows))]
        table = pa.table({"doc_id": ids, "title": ["A title"] * len(rows), "text": rows})
        with (place / "docs" / f"{shard:05d}.parquet").writing() as stream:
            pq.write_table(table, stream)
    queries = pa.table({"query_id": ["q1", "q2"], "text": ["retrieval masking", "x " * 100]})
    with (place / "queries.parquet").writing() as stream:
        pq.write_table(queries, stream)
    return Artifact(place, {"fingerprint": "c"})


def run(corpus, out, **fields):
    config = TokensConfig(vocabulary_size=300, max_length=16, query_length=8, **fields)
    return tokenise(config, {"corpus": corpus}, Place(str(out)))


def rows(out, name):
    return pq.read_table(out / name)["ids"].to_pylist()


def test_rows_lie_parallel_to_the_corpus_and_decode_to_its_words(corpus, tmp_path):
    result = run(corpus, tmp_path / "t")
    tokenizer = load_tokenizer(tmp_path / "t" / "tokenizer")
    first, second = rows(tmp_path / "t", "passages/00000.parquet"), rows(tmp_path / "t", "passages/00001.parquet")
    assert (len(first), len(second), result["passages"], result["queries"]) == (40, 20, 60, 2)
    decoded = tokenizer.decode(first[0], skip_special_tokens=True)
    assert TEXTS[0].lower().startswith(decoded[:20])
    assert all(row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row in first + second)
    lengths = np.load(tmp_path / "t" / "lengths.npy")
    assert lengths.tolist() == [len(row) for row in first + second]
    assert max(lengths) <= 16
    assert len(rows(tmp_path / "t", "queries.parquet")[1]) == 8


@pytest.mark.parametrize("written", range(6))
def test_a_run_killed_after_any_file_goes_on_to_the_same_bytes(corpus, tmp_path, monkeypatch, written):
    """Files: two of the tokenizer, two shards, the queries, the lengths."""
    whole, count = Place(str(tmp_path / "whole")), itertools.count()
    result = run(corpus, whole)

    @contextlib.contextmanager
    def write_or_die(place, write=Place.writing):
        if next(count) == written:
            raise KeyboardInterrupt
        with write(place) as stream:
            yield stream

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Place, "writing", write_or_die)
        run(corpus, tmp_path / "killed")
    shards = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed").glob("passages/*")}
    assert run(corpus, tmp_path / "killed") == result
    assert {path: path.stat().st_mtime_ns for path in shards} == shards, "what was written is not made again"
    killed = Place(str(tmp_path / "killed"))
    assert all((killed / name).sha256() == (whole / name).sha256() for name in whole.sizes())


def test_a_saved_tokenizer_does_not_depend_on_what_the_process_did_before(corpus, tmp_path):
    run(corpus, tmp_path / "t")
    tokens = Artifact(Place(str(tmp_path / "t")), {"fingerprint": "t"})

    def saved(name):
        initial(InitialConfig(backbone=BackboneConfig(name="tiny")), {"tokens": tokens}, Place(str(tmp_path / name)))
        return (tmp_path / name / "model" / "tokenizer.json").read_bytes()

    load_tokenizer.cache_clear()
    before = saved("before")
    load_tokenizer(tmp_path / "t" / "tokenizer")(["a b c"], truncation=True, max_length=5, padding=True)
    assert saved("after") == before
    assert json.loads(before)["truncation"] is None


def test_only_texts_with_more_tokens_than_a_row_are_cut(corpus, tmp_path):
    run(corpus, tmp_path / "long")
    tokenizer = load_tokenizer(tmp_path / "long" / "tokenizer")
    lengths = np.array([len(tokenizer(text)["input_ids"]) for text in TEXTS])
    longest = int(lengths.max())
    named = {"tokenizer": str(tmp_path / "long" / "tokenizer"), "query_length": 8}
    for limit in (longest, longest - 1):
        config = TokensConfig(max_length=limit, **named)
        result = tokenise(config, {"corpus": corpus}, Place(str(tmp_path / f"{limit}")))
        assert result["cut_share"] == pytest.approx(float((lengths > limit).mean()), abs=1e-4)
    queries = pq.read_table(tmp_path / f"{longest}" / "queries.parquet")
    assert queries["cut"].to_pylist() == [len(tokenizer("retrieval masking")["input_ids"]) > 8, True]


SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

PIECES: dict[str, list[str]] = {
    "wordpiece": [
        *("the", "##the", "The", "Ġ", "don", "theory", ",", "##,", "...", "'", "—", "of", "##s", "s", "c3", "▁")
    ],
    "byte-level": [
        *("Ġthe", "the", "ĠThe", "Ġtheory", ",", "Ġ,", "Ġ...", "âĢĶ", "Ġâ", "Ġof", "s", "##", "####", "Ã©", "Ġ", "3"),
        *("ory", "ĠI", "Ġwith", "Ġretriev"),
    ],
    "sentencepiece": ["▁the", "the", "▁The", "▁theory", ",", "▁,", "▁...", "—", "▁of", "s", "##", "é", "▁", "<0x2C>"],
}

CONTINUE = {
    "wordpiece": {"##the", "##,", "##s"},
    "byte-level": {"the", ",", "âĢĶ", "s", "##", "####", "Ã©", "3", "ory"},
    "sentencepiece": {"the", ",", "—", "s", "##", "é", "<0x2C>"},
}

STOP = {
    "wordpiece": {"the", "The", "don", "of", "s", ",", "##,", "...", "'", "—", "▁"},
    "byte-level": {"Ġthe", "ĠThe", "Ġof", "ĠI", "Ġwith", ",", "Ġ,", "Ġ...", "âĢĶ", "##", "####"},
    "sentencepiece": {"▁the", "▁The", "▁of", ",", "▁,", "▁...", "—", "##", "<0x2C>"},
}
"""Stop-words that begin a word, and punctuation; no piece that continues a word but punctuation; no half character."""


def saved(folder: Path, kind: str) -> Path:
    """A tokenizer of these very pieces."""
    entries = [*SPECIALS, *PIECES[kind]]
    if kind == "wordpiece":
        core = Tokenizer(models.WordPiece({token: i for i, token in enumerate(entries)}, unk_token="[UNK]"))
    elif kind == "byte-level":
        core = Tokenizer(models.BPE({token: i for i, token in enumerate(entries)}, [], unk_token="[UNK]"))
        core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    else:
        core = Tokenizer(models.Unigram([(token, -1.0) for token in entries], unk_id=1, byte_fallback=True))
        core.pre_tokenizer = pre_tokenizers.Metaspace()
        core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    names: dict[str, Any] = {f"{token[1:-1].lower()}_token": token for token in SPECIALS}
    PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", PIECES)
def test_stop_words_and_continuations_are_read_off_the_pieces(tmp_path: Path, kind: str) -> None:
    vocabulary = Vocabulary.of(saved(tmp_path, kind))
    tokens = load_tokenizer(tmp_path).convert_ids_to_tokens(range(vocabulary.size))
    assert set(PIECES[kind]) <= set(tokens)
    continues = {token for token in PIECES[kind] if vocabulary.continues_V[tokens.index(token)]}
    stops = {token for token in tokens if vocabulary.stop_V[tokens.index(token)]}
    assert continues == CONTINUE[kind]
    assert stops == STOP[kind]
    assert {token for token in tokens if vocabulary.special_V[tokens.index(token)]} == {*SPECIALS} - {"[UNK]"}


SPELLED = [
    ("wordpiece", ["the", "##s"], "thes"), ("wordpiece", ["Ġ", "##the"], "Ġthe"),
    ("byte-level", ["Ġthe", "ory"], "theory"), ("byte-level", ["the", "âĢĶ", "s"], "the—s"),
    ("sentencepiece", ["▁the", "s"], "thes"), ("sentencepiece", ["▁the", "<0x2C>"], "the,"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "pieces", "text"), SPELLED)
def test_words_are_spelled_without_the_tokenizers_marks(tmp_path, kind, pieces, text) -> None:
    assert speller(load_tokenizer(saved(tmp_path, kind)))(pieces) == text


def test_a_tokenizer_without_marks_has_words_of_one_token(tmp_path: Path) -> None:
    entries = {token: i for i, token in enumerate([*SPECIALS, "the", "ory", ","])}
    names: dict[str, Any] = {f"{token[1:-1].lower()}_token": token for token in SPECIALS}
    core = Tokenizer(models.WordLevel(entries, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(tmp_path)
    vocabulary = Vocabulary.of(tmp_path)
    assert not bool(vocabulary.continues_V.any())
    assert vocabulary.stop_V.tolist() == [False] * 5 + [True, False, True]


def test_the_stop_words_are_those_of_nltk() -> None:
    """Which bm25s has, and which must be known without it."""
    assert set(STOPWORDS_EN_PLUS) == STOP_WORDS and len(STOP_WORDS) == 179


@pytest.mark.parametrize("kind", list(PIECES))
def test_a_saved_tokenizer_names_a_class_that_transformers_4_has(kind: str, tmp_path: Path) -> None:
    """That the older library then reads it is shown by tests/docs/test_model_elsewhere.py."""
    first = load_tokenizer(saved(tmp_path / "first", kind))
    assert type(first).__name__ == "TokenizersBackend", "what this is about; else save_tokenizer has nothing to do"
    save_tokenizer(first, tmp_path / "second")
    settings = json.loads((tmp_path / "second" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    again = load_tokenizer(tmp_path / "second")
    assert type(again) is type(first) and again.get_vocab() == first.get_vocab()
    assert again("the theory, of") == first("the theory, of") and again.special_tokens_map == first.special_tokens_map


LONGEST = 24
PADDED = {"padding": True, "return_token_type_ids": True, "return_tensors": "pt"}
FILLER = "lorem ipsum dolor sit amet consetetur sadipscing elitr sed diam nonumy eirmod tempor invidunt ut labore"
DOCS = [
    ("d0", "Red houses", f"Houses of brick. {FILLER}"), ("d1", "", "a text without a title"),
    ("d2", f"A very long title {FILLER} {FILLER}", f"and a text {FILLER}"),
    ("d3", "The token [SEP] of BERT", "it ends a [SEP] text"), ("d4", "Short", "and short"),
]  # fmt: skip


@pytest.fixture(scope="module")
def titled(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    place = Place(str(tmp_path_factory.mktemp("corpus")))
    return write_parts(
        place, docs=DOCS, queries=[("q0", "red houses"), ("q1", "short")], qrels=[("train", "q0", "d0", 1)]
    )


def tokens_of(titled: Artifact, place: Place, join: TitleJoin, **fields: Any) -> Artifact:
    given = {"vocabulary_size": 400, "max_length": LONGEST, "query_length": 8, "titles": True, **fields}
    config = TokensConfig(title_join=join, **given)
    result = tokenise(config, {"corpus": titled}, place)
    return Artifact(place, {"fingerprint": join, "result": result, "config": config.model_dump()})


@pytest.fixture(scope="module")
def paired(titled: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tokens_of(titled, Place(str(tmp_path_factory.mktemp("pairs"))), "pair")


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


def test_a_separator_makes_the_same_rows_and_a_prompt_stands_before_the_title(titled, paired, tmp_path) -> None:
    assert rows_of(tokens_of(titled, Place(str(tmp_path / "a")), "separator")) == rows_of(paired)
    prompted = tokens_of(titled, Place(str(tmp_path / "b")), "pair", passage_prompt="find ")
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
def test_training_and_search_and_other_libraries_read_the_same(titled, tmp_path, join, representation) -> None:
    tokens = tokens_of(titled, Place(str(tmp_path / "tokens")), join)
    inputs = {"corpus": titled, "tokens": tokens}
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
    # The dense view: of the search, of the reference, and of sentence-transformers (docs/model_elsewhere.md).
    folder, dense_ND = adopted.place.local() / "model", views.dense_ND
    mask_BL1 = given["attention_mask"][..., None]
    mean_BD = (expected_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
    expected_BD = mean_BD if representation.dense == "mean" else expected_BLD[:, 0]
    np.testing.assert_allclose(dense_ND, expected_BD, rtol=1e-4, atol=1e-5)
    assert f"Title and text of a passage: {join}." in (folder / "README.md").read_text()
    theirs = opened(folder)
    pairs = [(title.replace("[SEP]", " "), text) for _, title, text in DOCS]
    if join == "pair":
        vectors = theirs.encode(pairs)
    else:
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
