"""Whose queries an evaluation searches, and in whose splits."""

from pathlib import Path

import pytest

from midmask.app.driver import choose_split, recipe_for
from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.artifact import Place
from midmask.corpora import CorpusConfig, judged_splits, prepare
from midmask.errors import UserError
from tests.support.corpora import layouts
from tests.support.corpora.collections import write_beir


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """20 judged queries, all of them in a test split."""
    write_beir(tmp_path / "few")
    header, *_ = (tmp_path / "few/qrels/test.tsv").read_text().splitlines()
    rows = [row for name in ("train", "dev", "test") for row in split_rows(tmp_path / f"few/qrels/{name}.tsv")]
    for name in ("train", "dev"):
        (tmp_path / f"few/qrels/{name}.tsv").unlink()
    (tmp_path / "few/qrels/test.tsv").write_text("\n".join([header, *rows]) + "\n")
    return tmp_path / "few"


def split_rows(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def asked(collection: Path, *flags: str) -> Options:
    return resolve(parse(["--corpus", f"beir:{collection}", *flags], "A job."), collection.parent / "jobs" / "x.py")


def split_of(collection: Path, split: str | None, *flags: str, trains: bool = False) -> tuple[CorpusConfig, str]:
    options = asked(collection, *flags)
    recipe, found = choose_split(recipe_for(options, "none"), split, options, trains=trains)
    return recipe.corpus, found


def test_a_test_split_alone_is_evaluated_on_whole(collection: Path, tmp_path: Path) -> None:
    corpus, split = split_of(collection, None)
    result = prepare(corpus, {}, Place(str(tmp_path / "out")))
    assert split == "test" and result["splits"]["test"]["queries"] == 20
    assert result["splits_made_here"] == [] and result["split_rule"] == "the corpus's own splits"


def test_it_is_divided_where_training_needs_it_or_the_user_says_so(collection: Path, tmp_path: Path) -> None:
    corpus, split = split_of(collection, None, trains=True)
    assert (corpus.splits, split) == ("complete", "dev")
    assert split_of(collection, None, "--set", "corpus.splits=complete")[0].splits == "complete"
    assert prepare(corpus, {}, Place(str(tmp_path / "out")))["splits_made_here"] == ["dev", "test", "train"]


def test_a_split_that_is_not_there_is_refused_before_anything_is_read(collection: Path) -> None:
    with pytest.raises(UserError, match=r"--split dev: beir:.* it has test; --set corpus\.splits=complete draws"):
        split_of(collection, "dev")


@pytest.mark.parametrize("splits", ["official", "complete"])
@pytest.mark.parametrize("kind", ["msmarco", "nq", "beir"])
def test_the_splits_told_from_file_names_are_those_of_the_prepared_collection(
    kind: str, splits: str, tmp_path: Path
) -> None:
    write = {"msmarco": layouts.write_msmarco, "nq": layouts.write_nq, "beir": write_beir}[kind]
    write(tmp_path / "in")
    config = CorpusConfig.model_validate({"name": f"{kind}:{tmp_path}/in", "splits": splits})
    assert set(prepare(config, {}, Place(str(tmp_path / "out")))["splits"]) <= set(judged_splits(config))
