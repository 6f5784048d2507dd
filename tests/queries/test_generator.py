"""Queries from tiny random models: one law for both kinds of models, the same in any batch, and kept over a kill."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from midmask.artifact import Place
from midmask.derived.generate import GenerateConfig, Generator
from midmask.derived.prompts import find_line_breaks
from midmask.errors import UserError
from midmask.queries.config import QueriesConfig
from midmask.queries.generator import ModelQueries
from midmask.queries.made import MadeQuery, Passage
from tests.support.derived.documents import text_of
from tests.support.derived.t5 import write_t5
from tests.support.queries.causal import write_causal

PROMPT = "Passage {passage} \n Query"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {name: tmp_path_factory.mktemp(name) for name in ("t5", "causal", "chat")}
    write_t5(found["t5"])
    write_causal(found["causal"])
    write_causal(found["chat"], chat=True)
    return found


def passages(count: int) -> list[Passage]:
    return [Passage(f"d{n}", "", text_of(n).lower()) for n in range(count)]


def config_of(**fields: object) -> QueriesConfig:
    generate = GenerateConfig(max_tokens=8, passage_tokens=24, prompt=PROMPT, **fields)
    return QueriesConfig(per_passage=2, generate=generate)


def kept(cache: Place) -> int:
    """Answers on disk."""
    return sum(len((cache / name).read().splitlines()) for name in cache.names())


def texts(made: list[MadeQuery]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for query in made:
        found.setdefault(query.doc_id, []).append(query.text)
    return found


@pytest.mark.parametrize("kind", ["t5", "causal", "chat"])
def test_a_passage_gets_the_same_queries_in_any_batch_and_company(folders: dict[str, Path], kind: str) -> None:
    """Prompts of other lengths beside it pad a causal model's rows on the left, which must not move a draw."""
    whole = list(ModelQueries(str(folders[kind]), config_of()).queries(passages(9)))
    assert all(query.source == "model" and query.hidden is None and "\n" not in query.text for query in whole)
    assert [query.doc_id for query in whole] == sorted(query.doc_id for query in whole)
    assert len({tuple(own) for own in texts(whole).values()}) == len(texts(whole)) >= 7, "an answer may be empty"
    assert all(len(own) == len(set(own)) <= 2 for own in texts(whole).values())
    small = ModelQueries(str(folders[kind]), config_of(batch_size=3))
    assert [query for passage in passages(9) for query in small.queries([passage])] == whole
    assert list(ModelQueries(str(folders[kind]), config_of(seed=1)).queries(passages(9))) != whole


@pytest.mark.parametrize("kind", ["causal", "chat"])
def test_a_causal_model_continues_the_prompt_and_ends_with_its_line(folders: dict[str, Path], kind: str) -> None:
    """With top_k = 1 a draw is the likeliest token: against a loop without cache, padding or `generate`."""
    tokenizer, model = AutoTokenizer.from_pretrained(folders[kind]), AutoModelForCausalLM.from_pretrained(folders[kind])
    line_break = tokenizer.convert_tokens_to_ids("\n")
    assert find_line_breaks(tokenizer) == [line_break]
    generator = Generator(folders[kind], config_of(top_k=1).generate)
    ends = set()
    for passage in passages(12):
        words = " ".join(passage.text.split()[:24])
        prompt = f"Passage {words} \n Query"
        ids = tokenizer(f"<user> {prompt} <assistant>" if kind == "chat" else prompt)["input_ids"]
        start = len(ids)
        for _ in range(8):
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([ids])).logits[0, -1]
            if len(ids) == start:
                scores[line_break] = -torch.inf
            ids.append(int(scores.argmax()))
            if ids[-1] in (line_break, tokenizer.eos_token_id):
                break
        ends.add(ids[-1])
        expected = tokenizer.decode(ids[start:], skip_special_tokens=True).strip()
        assert generator.queries([passage.doc_id], [passage.text], 1) == [[expected] if expected else []]
    assert {line_break, tokenizer.eos_token_id} <= ends, "both ends occur, else the test shows less"


def test_finished_batches_outlive_a_kill(folders: dict[str, Path], tmp_path: Path) -> None:
    config, cache = config_of(batch_size=2), Place(str(tmp_path / "cache"))
    whole = list(ModelQueries(str(folders["t5"]), config).queries(passages(20)))
    killed = ModelQueries(str(folders["t5"]), config, cache=cache).queries(passages(20))
    begun = list(islice(killed, 3))
    assert begun == whole[:3] and kept(cache) >= 4, "a batch is on disk before its queries are handed on"
    copied = Place(str(tmp_path / "copied"))
    copied.upload(tmp_path / "cache")
    broken = tmp_path / "broken"
    write_t5(broken)
    again = ModelQueries(str(broken), config, cache=copied)
    (broken / "model.safetensors").unlink()
    assert list(again.queries(passages(4)))[:3] == begun, "what is kept needs no model"
    with pytest.raises(UserError, match="no weights of PyTorch"):
        list(again.queries(passages(20)))
    assert list(ModelQueries(str(folders["t5"]), config, cache=cache).queries(passages(20))) == whole


def test_what_decides_the_queries_decides_what_is_found(folders: dict[str, Path], tmp_path: Path) -> None:
    cache = Place(str(tmp_path / "cache"))
    first = list(ModelQueries(str(folders["t5"]), config_of(), cache=cache).queries(passages(3)))
    other = [Passage("d0", "", text_of(7).lower()), *passages(3)[1:]]
    changed = list(ModelQueries(str(folders["t5"]), config_of(), cache=cache).queries(other))
    assert texts(changed)["d0"] != texts(first)["d0"] and texts(changed)["d1"] == texts(first)["d1"]
    seeded = list(ModelQueries(str(folders["t5"]), config_of(seed=5), cache=cache).queries(passages(3)))
    assert seeded == list(ModelQueries(str(folders["t5"]), config_of(seed=5)).queries(passages(3))) != first
    faster = ModelQueries(str(folders["t5"]), config_of(batch_size=1), cache=cache)
    assert list(faster.queries(passages(3))) == first and kept(cache) == 7, "runtime fields decide nothing"


def test_folders_that_write_nothing_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"queries.sources = model:.*no config.json"):
        ModelQueries(str(tmp_path), config_of())
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    with pytest.raises(UserError, match=r"no sequence-to-sequence or causal model .* a bert model, BertForMaskedLM"):
        list(ModelQueries(str(tmp_path), config_of()).queries(passages(1)))
    short = tmp_path / "short"
    write_causal(short, positions=18)
    with pytest.raises(UserError, match=r"takes 18 tokens, and the prompt .* leave no room"):
        list(ModelQueries(str(short), config_of()).queries(passages(1)))


def test_weights_that_are_missing_or_pickled_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    import safetensors.torch

    folder = tmp_path / "model"
    write_causal(folder)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    lost = {name: value for name, value in weights.items() if "layers.1.mlp" not in name}
    safetensors.torch.save_file(lost, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"holds no model\.layers\.1\.mlp.*3 of 20 weights are missing"):
        Generator(folder, config_of().generate)
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no file named model\.safetensors"):
        Generator(folder, config_of().generate)
