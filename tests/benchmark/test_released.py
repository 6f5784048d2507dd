"""A published model folder as a system of a paper: fine-tuned here, it stands in the paper's tables beside the number
that is printed for it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from midmask.artifact import Place
from midmask.benchmark.collect import collect
from midmask.benchmark.design import Benchmark, Released, Setting, names_in, variant
from midmask.benchmark.layout import lay_out
from midmask.benchmark.results import Results, SystemKey
from midmask.errors import UserError
from midmask_papers.layouts import NamedTable
from midmask_papers.paper_tables import paper_tables
from midmask_papers.published import published
from tests.support.benchmark.synthetic import dense, drawn
from tests.support.benchmark.tiny import SHORT, WORDS, run_here, write_collection

DPR = Setting(protocols={"dense": "dpr"}, changes={"stages.*.train.steps": 2, "stages.*.train.batch_size": 4})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a paper's authors publish: a BERT with its tokenizer, as transformers saves them."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    where = tmp_path_factory.mktemp("hub") / "RetroMAE"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    core = Tokenizer(models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    specials = {f"{name[1:-1].lower()}_token": name for name in names[:5]}
    PreTrainedTokenizerFast(tokenizer_object=core, **specials).save_pretrained(where)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertForMaskedLM(BertConfig(vocab_size=len(names), max_position_embeddings=512, **shape)).save_pretrained(where)
    return where


def benchmark_of(corpus: str, *systems: str, **fields: Any) -> Benchmark:
    given = {"name": "retromae", "title": "a try", "corpus": corpus, "settings": {"dpr": DPR}, "changes": SHORT}
    return Benchmark(**{**given, "systems": systems, "measures": ("retromae",), **fields})


def row_of(table: NamedTable, system: str) -> str:
    (line,) = (line for line in table.markdown().splitlines() if f" {system} " in line)
    return line


def test_a_folder_is_fine_tuned_and_stands_beside_its_printed_number(folder: Path, tmp_path: Path) -> None:
    corpus, system = write_collection(tmp_path / "collection"), f"released:retromae@wiki={folder}"
    layout = lay_out(benchmark_of(corpus, "none", system, splits=("dev",)))
    assert [cell.key for cell in layout.cells] == [
        dense("none", setting="dpr"),
        SystemKey(system, "none", "dense", "dpr"),
    ]
    released = layout.cells[1]
    assert (released.recipe.backbone.name, released.recipe.tokens.tokenizer) == (str(folder), str(folder))
    assert released.recipe.protocol == "dpr" and released.recipe.objective is None
    storage = Place(str(tmp_path / "store"))
    run_here(layout, storage)
    found = collect(layout.cells, storage)
    (table,) = (one for one in paper_tables("retromae", found) if one.name == "retromae.main.dpr")
    mean = np.mean(found.where(system=system)[0].per_query.to_pandas().query("measure == 'RR@10'")["value"])
    first = row_of(table, f"RetroMAE, released: {folder}").split("|")[2]
    assert f"{mean:.4f}" in first and "(0.3553)" in first and "fine-tuned here" in table.markdown()
    assert "released" not in "".join(one.markdown() for one in paper_tables("retromae", found.where(system="none")))


def test_its_row_is_that_of_its_collection_or_of_all() -> None:
    """RetroMAE's main results print it after Wikipedia, and after MS MARCO."""
    truth = {
        SystemKey("released:retromae@corpus=/hub/a", "none", "dense", "ance"): 0.4,
        SystemKey("released:retromae=/hub/b", "none", "dense", "ance"): 0.3,
        SystemKey("released:seed=/hub/c", "none", "dense", "ance"): 0.2,
    }
    tables = {one.name: one for one in paper_tables("retromae", Results(drawn(truth)))}
    rows = {name: [row for row in table.table.systems if "released" in row] for name, table in tables.items()}
    assert rows["retromae.main.ance"] == ["RetroMAE, released: /hub/b"]
    assert rows["retromae.main.corpus"] == ["RetroMAE, released: /hub/a", "RetroMAE, released: /hub/b"]
    order = tables["retromae.main.corpus"].table.systems
    assert order.index("RetroMAE, released: /hub/a") == order.index("RetroMAE") + 1
    printed = {
        number.value
        for number in published("retromae", "main")
        if (number.system, number.setting, number.collection, number.measure) == ("retromae", "ance", "corpus", "RR@10")
    }
    assert tables["retromae.main.corpus"].beside.published["RetroMAE, released: /hub/a", "dense MRR@10"] in printed


def test_how_it_is_written() -> None:
    for text, expected in {
        "released:simlm=/hub/simlm": Released("simlm", "", "/hub/simlm"),
        "released:retromae@wiki=a=b": Released("retromae", "wiki", "a=b"),
    }.items():
        assert Released.of(text) == expected and str(expected) == text
        assert variant(text) == ("none", dict.fromkeys(("backbone.name", "tokens.tokenizer"), expected.folder))
    assert Released.of("retromae") is None is Released.of("none[backbone.name=released:x]")
    assert names_in("bm25,released:retromae=/hub/x,none") == ["bm25", "released:retromae=/hub/x", "none"]


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("released:retromea=/hub/x", "'retromea'; did you mean 'retromae'"),
        ("released:retromae@wikipedia=/hub/x", "'wikipedia'; did you mean 'wiki'"),
        ("released:retromae", "released:recipe=FOLDER"),
    ],
)
def test_another_form_is_refused(system: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        benchmark_of("pydocs", system)
    with pytest.raises(UserError, match="/hub/nothing"):
        lay_out(benchmark_of("pydocs", "released:retromae=/hub/nothing"))
