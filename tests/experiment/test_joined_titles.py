"""Joined titles in a recipe: what has no meaning is refused, and a model folder's form is taken over."""

from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.experiment.model_folder import as_folder_reads
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.teacher.teach import TeacherConfig
from midmask.tokens import TokensConfig, tokenise
from tests.support.encoders.models import random_model
from tests.support.retrieve.collection import write_corpus

REFUSED = {
    "mlm": ({"objective.packing": True}, r"objective\.packing = true.*objective\.packing=false"),
    "retromae": ({"excerpt": 20}, r"excerpt = 20.*leave excerpt at none"),
    "dupmae": ({"pretrain_on": ["tokens:/rows"]}, r"tokens:/rows.*name a collection with titles"),
    "rom": ({"tokens.titles": False}, r"title_join = pair with titles = false.*tokens\.titles=true"),
}


@pytest.mark.parametrize("method", REFUSED)
def test_what_has_no_meaning_is_refused(method: str) -> None:
    changes, message = REFUSED[method]
    with pytest.raises(UserError, match=message):
        override(RECIPES[method](), {"tokens.titles": True, "tokens.title_join": "pair", **changes})
    if "tokens.titles" not in changes:
        kept = override(RECIPES[method](), {"tokens.titles": True, "tokens.title_join": "separator", **changes})
        assert kept.tokens.title_join == "separator"


def test_a_tokenizer_that_joins_texts_without_a_separator_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    core = Tokenizer(models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    specials = {f"{name[1:-1].lower()}_token": name for name in names[:5]}
    PreTrainedTokenizerFast(tokenizer_object=core, **specials).save_pretrained(tmp_path / "tokenizer")
    corpus = write_corpus(Place(str(tmp_path / "corpus")), passages=12, queries=2)
    config = TokensConfig(tokenizer=str(tmp_path / "tokenizer"), titles=True, title_join="pair")
    with pytest.raises(UserError, match=r"title_join = pair: .*no separator between two texts"):
        tokenise(config, {"corpus": corpus}, Place(str(tmp_path / "tokens")))


def test_a_folder_s_form_is_taken_over_and_a_teacher_reads_one_text(tmp_path: Path) -> None:
    random_model("bert").save_pretrained(tmp_path)
    (tmp_path / "midmask.json").write_text(
        '{"format": 3, "representation": {}, "form": {"titles": true, "title_join": "pair"}}'
    )
    recipe: Recipe = RECIPES["retromae"]()
    read = as_folder_reads(recipe, tmp_path, ()).tokens
    assert (read.titles, read.title_join) == (True, "pair")
    without = as_folder_reads(override(recipe, {"tokens.titles": False}), tmp_path, ("tokens.titles",)).tokens
    assert (without.titles, without.title_join) == (False, "space")
    teacher = TeacherConfig(folder="/teacher")
    assert teacher.read_from(read).title_join == "space"
