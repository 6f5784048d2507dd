"""Input that once ended in a traceback, used gigabytes or took minutes, one by one. Each ends in one line."""

import gzip
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from midmask.core.config import override
from midmask.corpora import tripclick
from midmask.corpora.chunks import MALFORMED, NO_GRADE
from midmask.corpora.config import CorpusConfig
from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.representation import Representation
from midmask.errors import LONGEST, UserError, quoted, unknown
from midmask.exchange.negatives_files import read_negatives_file
from midmask.exchange.score_files import read_scores_file
from midmask.experiment.evaluations import refuse_missing_splits
from midmask.experiment.plan import plan
from midmask.queries.given import read_file
from midmask.recipes import RECIPES
from midmask.store.place import Place
from tests.fuzz.running import refused
from tests.support.corpora.collections import prepared, write, write_beir
from tests.support.corpora.layouts import write_dpr_training, write_nq
from tests.support.encoders.models import random_model

GRADE = ["inf", "-inf", "nan", "1e400", "9" * 400, "²"]
BAD_ROWS = [
    *(("qrels/train.tsv", f"q1\td5\t{grade}\n", MALFORMED) for grade in GRADE),
    ("qrels/train.tsv", "q1\td5\t0.5\n", NO_GRADE),
    ("corpus.jsonl", '{"_id": "two words", "text": "a passage"}\n', "white space in an id"),
]


@pytest.mark.parametrize(("file", "row", "kind"), BAD_ROWS, ids=quoted)
def test_a_row_is_quarantined_with_its_reason(tmp_path: Path, file: str, row: str, kind: str) -> None:
    write_beir(tmp_path / "in")
    with open(tmp_path / "in" / file, "a") as rows:
        rows.write(row)
    result = prepared(f"beir:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0)
    assert result["rows_quarantined"] == {kind: 1}


def damaged(data: bytes) -> bytes:
    """A gzip stream whose header is whole, and whose contents no inflater takes."""
    packed = bytearray(gzip.compress(data))
    packed[12:40] = b"\xff" * 28
    return bytes(packed)


def test_a_damaged_gzip_stream_is_named(tmp_path: Path) -> None:
    for number, file in enumerate(("corpus.jsonl.gz", "qrels/train.tsv.gz")):
        write_beir(folder := tmp_path / str(number), packed=True)
        (folder / file).write_bytes(damaged(gzip.decompress((folder / file).read_bytes())))
        refused(lambda: prepared(f"beir:{folder}", tmp_path / "out"), file, "broken gzip stream")
    (tmp_path / "x.jsonl.gz").write_bytes(damaged(b'{"qid": 1, "pos": [], "neg": {}}\n' * 50))
    place = Place(str(tmp_path / "x.jsonl.gz"))
    for read in (partial(read_negatives_file, place), partial(read_file, place)):
        refused(read, "x.jsonl.gz", "broken gzip stream")


def test_dpr_json_that_is_not_utf8_names_the_file(tmp_path: Path) -> None:
    write_nq(tmp_path)
    write_dpr_training(tmp_path)
    (file,) = tmp_path.glob("*.json")
    data = file.read_bytes()
    for broken, said in ((data.replace(b"e", b"\xe9", 1), "UTF-8"), (data[:-30], "broken or cut off")):
        write(file, broken)
        refused(lambda: prepared(f"nq:{tmp_path}", tmp_path / "out"), file.name, said)


def test_quotes_are_of_the_rows_that_are_counted_and_the_named_field_can_be_set(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", passages=3000)
    with open(tmp_path / "in/corpus.jsonl", "a") as corpus:
        corpus.write("{broken\n" * 5)
    write(tmp_path / "in/qrels/train.tsv", b"query-id\tcorpus-id\tscore\nwrong\td0\t1\n")
    line = refused(lambda: prepared(f"beir:{tmp_path}/in", tmp_path / "out"), "wrong\\td0\\t1")
    assert "{broken" not in line
    (path,) = set(re.findall(r"[\w.]+\.bad_rows_threshold", line))
    assert override(RECIPES["mlm"](), {path: "0.5"}).corpus.bad_rows_threshold == 0.5


@pytest.mark.parametrize("part", ["<!--", "<a", "<TITLE>", "</TITLE>", "<TEXT><TITLE>", "<"])
def test_unclosed_markup_of_half_a_megabyte_is_read(part: str) -> None:
    """Where time grows with the square of the length it takes hours, and pytest's limit ends it."""
    text = part * (500_000 // len(part))
    doc_id, *_ = tripclick.parse_passage(f"<DOC><DOCNO>d</DOCNO>{text}<TEXT>{text}</TEXT></DOC>")
    assert doc_id == "d"


WRONG_COLUMNS = {
    "query_id": [[1.5], [b"\xff"], [None], [["q"]], [True]],
    "corpus_id": [["d"], [[1.5]], [[["d"]]], [{"a": 1}], [None], [3]],
    "score": [[["high"]], [3.0], ["x"], [[[1.0]]], [None], [[None]], [[float("nan")]], [[float("inf")]], [[1e39]]],
}


def test_score_files_of_other_types_or_damaged_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for name, cells in WRONG_COLUMNS.items():
        for values in cells:
            columns: dict[str, Any] = {"query_id": ["q"], "corpus_id": [["d"]], "score": [[1.0]], name: values}
            pq.write_table(pa.table(columns), path)
            refused(lambda: read_scores_file(Place(str(path))), "x.parquet")
    for data in (b"", b"PAR1", b"PAR1" + b"\xff" * 40 + b"PAR1"):
        path.write_bytes(data)
        refused(lambda: read_scores_file(Place(str(path))), "x.parquet", "cannot be read")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    random_model("bert").save_pretrained(folder)
    return folder


CONFIGS = [{"hidden_size": 64}, {"hidden_size": "abc"}, {"hidden_size": 0}, {"num_attention_heads": 0},
           {"hidden_act": "nope"}, {"pad_token_id": 1000}, {"dtype": "floaty"}]  # fmt: skip
NO_INDEX = ["null", "{}", "[]", "{bad", '{"weight_map": 5}', '{"weight_map": {"a": 5}}', '{"weight_map": {}}']
FILES = {
    "config.json": ["null", "[]", "5", "[" * 100_000, "\x00", "", *map(json.dumps, CONFIGS)],
    "midmask.json": ["null", "[" * 100_000, '{"format": "x"}', '{"representation": {"width": ' + "9" * 5000 + "}}"],
    "modules.json": ["null", "[5]", '[{"idx": 0}]', "[" * 100_000, '[{"path": "", "type": 5}]'],
    "model.safetensors": ["", "x" * 100, "\x7f" * 8],
    "model.safetensors.index.json": NO_INDEX,
}


@pytest.fixture
def folder(tmp_path: Path, model: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, own in FILES.items() for text in own], ids=quoted)
def test_a_model_folder_with_a_file_that_does_not_fit_is_refused(folder: Path, file: str, text: str) -> None:
    """The change of a config is laid over the whole one; an index is there in the place of the weights."""
    if "index" in file:
        (folder / "model.safetensors").unlink()
    if text.startswith("{") and file == "config.json":
        text = json.dumps(json.loads((folder / file).read_text()) | json.loads(text))
    (folder / file).write_text(text)
    refused(lambda: load_bi_encoder(folder, dropout=0.0), str(folder))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(folder: Path, value: float) -> None:
    """Of the model; and of the projection beside it."""
    path, name = folder / "model.safetensors", "bert.encoder.layer.1.attention.self.query.weight"
    whole = path.read_bytes()
    weights = safetensors.torch.load(whole)
    weights[name][3, 5] = value
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})
    refused(lambda: load_bi_encoder(folder, dropout=0.0), name, "not finite")
    path.write_bytes(whole)
    facts = {"format": 1, "representation": Representation(width=4).model_dump()}
    (folder / "midmask.json").write_text(json.dumps(facts))
    (folder / "2_Dense").mkdir()
    weight = torch.full((4, 32), value)
    safetensors.torch.save_file({"linear.weight": weight}, folder / "2_Dense/model.safetensors")
    refused(lambda: load_bi_encoder(folder, dropout=0.0), "2_Dense", "not finite")


CHANGES = [("pretrain.steps", "9" * 5000), ("pretrain.steps", "[[[["), ("pretrain.steps", "[" * 100_000),
           ("pretrain.steps", "9" * 20), ("corpus.name", "beir:\ud800"), ("corpus.name", '"beir:\\ud800"'),
           ("corpus.name", "beir:a\0b"), ("pretrain.batch_size", "1e23"), ("pretrain.batch_size", "1" + "0" * 15),
           ("pretrain.learning_rate", "1e400"), ("pretrain.learning_rate", "NaN"), ("\ud800" * 9000, "1"),
           ("evaluation.passage_length", "100000")]  # fmt: skip


def test_a_setting_that_cannot_be_is_refused() -> None:
    for path, value in CHANGES:
        line = refused(lambda path=path, value=value: override(RECIPES["retromae"](), {path: value}).check())
        assert path in line or "\\ud800" in line
    changes = {"stages.0.loss": '{"name": "contrastive"}', "stages.0.loss.regularisers.ramp": "0.5"}
    refused(lambda: override(RECIPES["retromae_ance"](), changes), "replaces the whole of")


def test_messages_are_bounded_and_can_be_printed() -> None:
    assert len(str(UserError("x" * 10_000_000))) < LONGEST + 100
    assert str(UserError("a\ud800b")) == "a\\ud800b"
    assert len(str(unknown("name", "y" * 1_000_000, ["yes", "no"]))) < 300
    assert len(quoted([["x" * 1000] * 1000] * 1000)) < 300 and len(quoted(10**5000)) < 100


def test_splits_that_a_collection_lacks_are_refused_before_anything_is_computed(tmp_path: Path) -> None:
    write(tmp_path / "texts/a.jsonl", b'{"text": "some text"}\n' * 3)
    write_beir(tmp_path / "in")
    (tmp_path / "in/qrels/test.tsv").unlink()
    recipe = RECIPES["mlm"]()
    texts = plan(override(recipe, {"corpus.name": f"texts:{tmp_path}/texts"}))
    assert texts.pretrained is not None
    refuse_missing_splits([texts.pretrained])
    refused(lambda: refuse_missing_splits([texts.evaluation(recipe.evaluation)]), "texts alone", "--pretrain-on")
    wanted = recipe.evaluation.model_copy(update={"split": "test"})
    steps = {}
    for splits in ("complete", "official"):
        config = CorpusConfig.model_validate({"name": f"beir:{tmp_path}/in", "splits": splits})
        steps[splits] = plan(recipe).evaluation(wanted, on=plan(recipe).elsewhere(config))
    refuse_missing_splits([steps["complete"]])
    refused(lambda: refuse_missing_splits([steps["official"]]), "'test'", "Known: dev, train")
