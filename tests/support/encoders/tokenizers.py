"""A tokenizer with the pair template of a family."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.support.encoders.models import PIECES, SPECIALS, WORDS

LONGEST = 24
TEMPLATES = {
    "no pairs": ("[CLS] $A [SEP]", None),
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
    "two ends": ("[CLS] $A [MASK] [SEP]", "[CLS] $A [MASK] [SEP] [CLS] $B:1 [MASK]:1 [SEP]:1"),
}


def write_tokenizer(folder: Path, template: str, longest: int = 512) -> Path:
    pieces = {token: number for number, token in enumerate([*SPECIALS, *WORDS, *PIECES])}
    core = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = TEMPLATES[template]
    specials = [(name, pieces[name]) for name in ("[CLS]", "[SEP]", "[MASK]")]
    core.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=longest, **names).save_pretrained(folder)
    return folder
