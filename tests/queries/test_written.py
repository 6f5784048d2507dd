"""Queries from small models: the same in any batch, kept over a kill; and the training of such a model."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
import torch.nn.functional as F
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.seq2seq import build_seq2seq
from midmask.errors import UserError
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.sample import finetuning_batch
from midmask.queries.collection import MadeQuery, Passage, draw_passages
from midmask.queries.config import QueriesConfig
from midmask.queries.query_model import (
    GenerateConfig,
    GeneratorConfig,
    QueryGenerator,
    generator_setup,
)
from midmask.queries.source_classes import ModelQueries
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from midmask.training.examples import local_reader
from midmask.training.run import run_training
from tests.support.objectives.texts import sample_vocabulary
from tests.support.queries.articles import articles, opening
from tests.support.queries.documents import text_of
from tests.support.queries.small_models import PAIRS, generating, write_labelled, write_t5
from tests.support.training.runs import assert_same_run, trace_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = tmp_path_factory.mktemp("t5")
    write_t5(found)
    return str(found)


def passages(count: int) -> list[Passage]:
    return [Passage(f"d{n}", "", text_of(n).lower()) for n in range(count)]


def config_of(**fields: object) -> QueriesConfig:
    generate = GenerateConfig(max_tokens=8, passage_tokens=24, **fields)
    return QueriesConfig(per_passage=2, generate=generate)


def kept(cache: Place) -> int:
    """Answers on disk."""
    return sum(len((cache / name).read_json()) for name in cache.names())


def texts(made: list[MadeQuery]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for query in made:
        found.setdefault(query.doc_id, []).append(query.text)
    return found


def test_a_passage_gets_the_same_queries_in_any_batch_and_company(folder: str) -> None:
    whole = list(ModelQueries(folder, opening(config_of())).queries(passages(9)))
    assert all(query.hidden is None and "\n" not in query.text for query in whole)
    assert [query.doc_id for query in whole] == sorted(query.doc_id for query in whole)
    assert len({tuple(own) for own in texts(whole).values()}) == len(texts(whole)) >= 7, "an answer may be empty"
    assert all(len(own) == len(set(own)) <= 2 for own in texts(whole).values())
    small = ModelQueries(folder, opening(config_of(batch_size=3)))
    assert [query for passage in passages(9) for query in small.queries([passage])] == whole
    assert list(ModelQueries(folder, opening(config_of(seed=1))).queries(passages(9))) != whole


def test_finished_batches_outlive_a_kill(folder: str, tmp_path: Path) -> None:
    config, cache = config_of(batch_size=2), Place(str(tmp_path / "cache"))
    whole = list(ModelQueries(folder, opening(config)).queries(passages(20)))
    killed = ModelQueries(folder, opening(config, cache=cache)).queries(passages(20))
    begun = list(islice(killed, 3))
    assert begun == whole[:3] and kept(cache) >= 4, "a batch is on disk before its queries are handed on"
    copied = Place(str(tmp_path / "copied"))
    copied.upload(tmp_path / "cache")
    broken = tmp_path / "broken"
    write_t5(broken)
    again = ModelQueries(str(broken), opening(config, cache=copied))
    (broken / "model.safetensors").unlink()
    assert list(again.queries(passages(4)))[:3] == begun, "what is kept needs no model"
    with pytest.raises(UserError, match="no model can be read there"):
        list(again.queries(passages(20)))
    assert list(ModelQueries(folder, opening(config, cache=cache)).queries(passages(20))) == whole


def test_folders_that_write_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"queries.sources = model:.*no config.json"):
        ModelQueries.content(str(tmp_path), "queries.sources")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    with pytest.raises(UserError, match=r"no sequence-to-sequence model .* a bert model, BertForMaskedLM"):
        list(ModelQueries(str(tmp_path), opening(config_of())).queries(passages(1)))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    write_t5(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no file named model\.safetensors"):
        QueryGenerator(tmp_path, config_of().generate)


JSON_FILES = ("config", "generation_config", "tokenizer", "tokenizer_config")
LIKELIEST = QueriesConfig(per_passage=1, generate=GenerateConfig(top_k=1))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_labelled(Place(str(tmp_path_factory.mktemp("labelled"))))


def run(config: GeneratorConfig, inputs: dict[str, Artifact], out: Path, *, stop_at: int | None = None) -> dict:
    """The step; raises KeyboardInterrupt when `stop_at` steps are done."""

    def log(done: int, values: dict[str, float]) -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    setup = generator_setup(config, inputs)
    return run_training(setup, Place(str(out)), local_reader, log, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def learnt(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("learnt")
    result = run(generating(dropout=0.0, steps=160, learning_rate=3e-3, decay=0.5), inputs, out)
    assert result["loss"] < 0.05, "an untrained one is at the logarithm of the vocabulary, 5.7"
    return out / "model"


def written(folder: Path) -> dict[str, str]:
    passages = [Passage(f"d{row}", "", text) for row, text in enumerate(PAIRS.values())]
    return {query.doc_id: query.text for query in ModelQueries(str(folder), opening(LIKELIEST)).queries(passages)}


def test_it_writes_the_pairs_that_it_was_trained_on(learnt: Path) -> None:
    assert list(written(learnt).values()) == list(PAIRS)


def test_a_passage_is_read_as_far_as_in_training(learnt: Path) -> None:
    """What lies behind 48 tokens changes nothing; what lies before does."""
    filler = " the" * 46
    texts = [filler, f"{filler} {next(iter(PAIRS.values()))}", f"the {next(iter(PAIRS.values()))}"]
    source = ModelQueries(str(learnt), opening(LIKELIEST))
    one, other, begun = (query.text for query in source.queries([Passage(text, "", text) for text in texts]))
    assert one == other != begun


def test_another_library_loads_the_folder_and_writes_the_same(learnt: Path) -> None:
    model, loading = AutoModelForSeq2SeqLM.from_pretrained(learnt, output_loading_info=True)
    assert not any(loading.values()), loading
    tokenizer = AutoTokenizer.from_pretrained(learnt)
    assert tokenizer.model_max_length == 48
    names = {path.name for path in learnt.iterdir()}
    assert names == {"model.safetensors", *(f"{name}.json" for name in JSON_FILES)}
    for query, text in PAIRS.items():
        rows = tokenizer(text, return_tensors="pt")
        ids = model.generate(rows["input_ids"], attention_mask=rows["attention_mask"], max_new_tokens=24)
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == query


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    config = generating(log_every=1)
    whole = run(config, inputs, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(config, inputs, tmp_path / "again", stop_at=8)
    assert not (tmp_path / "again" / "model").exists()
    again = run(config, inputs, tmp_path / "again")
    assert again["loss"] == whole["loss"] and set(whole["parts"]) == {"generation"}
    assert_same_run(trace_of(tmp_path / "whole"), trace_of(tmp_path / "again"), within=0.0)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "again"))
    assert one == other


def test_the_loss_is_that_of_each_query_alone() -> None:
    """Against the library's own labels, one unpadded row at a time: neither padding nor the batch counts."""
    words = sample_vocabulary(200)
    model = build_seq2seq(BackboneConfig(dropout=0.0), words, decoder_layers=1, seed=3).eval()
    batch = finetuning_batch(words, queries=3, group=1, query=9, passage=14)
    lengths = torch.tensor([9, 4, 6])
    for row, length in enumerate(lengths.tolist()):
        batch.texts["query"].ids_BL[row, length:] = words.pad_id
        batch.texts["query"].ids_BL[row, length - 1] = words.sep_id
        batch.texts["passage"].ids_BL[row, 5 + length :] = words.pad_id
    batch.texts["query"].lengths_B.copy_(lengths)
    batch.texts["passage"].lengths_B.copy_((5 + lengths).clamp(max=14))
    objective = QueryGeneration(QueryGeneration.Config(decoder_layers=1), model, words)
    part = objective(objective.draw(batch)).parts["generation"]
    assert int(part.count) == int((lengths - 1).sum()), "every token but [CLS], [SEP] included"
    expected = 0.0
    for row, length in enumerate(lengths.tolist()):
        passage = batch.texts["passage"].ids_BL[row : row + 1, : min(14, 5 + length)]
        query = batch.texts["query"].ids_BL[row, :length]
        logits = model.model(input_ids=passage, decoder_input_ids=query[None, :-1]).logits[0]
        expected += float(F.cross_entropy(logits, query[1:], reduction="sum").detach())
    assert float(part.total.detach()) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="one passage a query, not 2"):
        objective.draw(finetuning_batch(words, queries=2, group=2, query=9, passage=14))


def test_it_starts_from_a_pre_trained_encoder(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    """The encoder's weights are the folder's, and the decoder's where it has such a weight; the rest is fresh."""
    tokenizer = (inputs["tokens"].place / "tokenizer").local()
    vocabulary = Vocabulary.of(tokenizer)
    backbone = build_backbone(BackboneConfig(), vocabulary, seed=9)
    backbone.save(tmp_path / "start", tokenizer)
    named = BackboneConfig(name=str(tmp_path / "start"))
    model = build_seq2seq(named, vocabulary, decoder_layers=1, seed=0).model
    encoder, decoder = model.encoder.state_dict(), model.decoder.bert.state_dict()
    for name, value in backbone.encoder.state_dict().items():
        torch.testing.assert_close(encoder[name], value, rtol=0, atol=0)
        if name in decoder:
            torch.testing.assert_close(decoder[name], value, rtol=0, atol=0)
    assert any("crossattention" in name for name in decoder) and "encoder.layer.0.output.dense.weight" in decoder
    new, weight = named.model_copy(update={"fresh": True}), "encoder.layer.0.output.dense.weight"
    fresh, other = (build_seq2seq(new, vocabulary, decoder_layers=1, seed=seed).model.encoder for seed in (0, 1))
    assert not torch.equal(fresh.state_dict()[weight], encoder[weight])
    assert not torch.equal(fresh.state_dict()[weight], other.state_dict()[weight])


def test_a_frozen_encoder_stays_as_it_is(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    """And is saved with the decoder that was trained under it, also over an interruption."""
    config = generating(log_every=1)
    config = config.model_copy(update={"loss": QueryGeneration.Config(decoder_layers=1, frozen_encoder=True)})
    begun = generator_setup(config, inputs).build()[0].state_dict()
    with pytest.raises(KeyboardInterrupt):
        run(config, inputs, tmp_path, stop_at=8)
    run(config, inputs, tmp_path)
    ended = safetensors.numpy.load_file(tmp_path / "model" / "model.safetensors")
    changed = {name for name, value in ended.items() if not np.array_equal(value, begun[f"model.{name}"].numpy())}
    assert changed and all(name.startswith("decoder.") for name in changed)


def test_passages_are_drawn_by_their_ids_alone() -> None:
    ids = [one.doc_id for one in articles(8)]
    few = draw_passages(ids, 0, "spans", 10)
    assert len(few) == 10 and few == draw_passages(ids[::-1], 0, "spans", 10)
    more = draw_passages(ids, 0, "spans", 20)
    assert few < more and more != draw_passages(ids, 1, "spans", 20)
    assert draw_passages(ids, 0, "spans", 40) == set(ids)
