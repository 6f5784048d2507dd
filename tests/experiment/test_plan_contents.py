"""What a pre-training depends on: the artifacts that its objective reads, and what files and folders hold."""

from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.corpora.collections import write_beir


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    write_beir(tmp_path / "few")
    return f"beir:{tmp_path}/few"


def recipe_of(name: str, corpus: str, **changes: str) -> Recipe:
    return override(RECIPES[name](), {"corpus.name": corpus, **changes})


def test_what_a_generators_folder_holds_is_part_of_the_identity(corpus, tmp_path):
    simlm = override(recipe_of("simlm", corpus), {"objective.generator": str(tmp_path / "generator")})
    found = []
    for text in ("{}", '{"other": 1}', "{}"):
        (tmp_path / "generator").mkdir(exist_ok=True)
        (tmp_path / "generator" / "config.json").write_text(text)
        found.append(plan(simlm).pretrained.fingerprint)
    assert found[0] == found[2] != found[1]


READ = {
    "mlm": set(),
    "cocondenser": {"spans"},
    "cotmae": {"spans"},
    "cotmae_qc": {"pseudo_queries"},
    "rom": {"weights"},
}
"""What each recipe reads besides tokens."""

CHANGES = {
    "spans": {"spans.span_length": 64},
    "pseudo_queries": {"pseudo_queries.source": "titles"},
    "weights": {"weights.source": "bm25"},
}


@pytest.mark.parametrize("name", READ)
def test_a_pre_training_depends_on_what_it_reads_and_on_nothing_else(corpus, name):
    recipe = recipe_of(name, corpus)
    before = plan(recipe).pretrained
    assert set(before.inputs) == {"tokens", "corpus", *READ[name]}
    for artifact, change in CHANGES.items():
        after = plan(override(recipe, change)).pretrained
        assert (after.fingerprint != before.fingerprint) == (artifact in READ[name]), artifact


def test_term_weights_come_from_what_their_source_needs(corpus, tmp_path):
    (tmp_path / "weights.jsonl").write_text('{"id": "d", "vector": {"passage": 1.0}}')
    rom = recipe_of("rom", corpus)

    def needs(source):
        weigh = plan(override(rom, {"weights.source": source})).pretrained.inputs["weights"]
        return {step.name for step in weigh.inputs.values()}

    assert needs("idf") == needs("bm25") == {"tokenise", "statistics"}
    assert needs("uniform") == {"tokenise"}
    assert needs(f"file:{tmp_path}/weights.jsonl") == {"tokenise", "prepare"}


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        ("cotmae_qc", "pseudo_queries.source", "d\tone"),
        ("rom", "weights.source", '{"id": "d", "vector": {"passage": 1.0}}'),
    ],
)
def test_a_file_of_queries_or_weights_counts_by_its_contents(name, field, text, corpus, tmp_path):
    (file := tmp_path / "given").write_text(text)
    recipe = recipe_of(name, corpus, **{field: f"file:{file}"})
    before = plan(recipe).pretrained.fingerprint
    file.write_text(f"{text}\n{text}")
    assert plan(recipe).pretrained.fingerprint != before
    file.unlink()
    with pytest.raises(UserError, match="there is no such file"):
        plan(recipe)
