"""Text to token rows: the rules by which passages and queries are cut, and the step that cuts each passage once.

Passages, and queries that are typed or made later, are cut by the same functions. The step's shards lie parallel to the
corpus's shards.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from midmask.core.config import Config, added
from midmask.errors import UserError
from midmask.store.place import Place
from midmask.store.pretrained import model_folder
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_metadata, read_passages, read_table, write_table, writing_table
from midmask.text.vocabulary import TitleJoin, Vocabulary, copy_untruncated, load_tokenizer, save_tokenizer

CutPassages = Callable[[list[str], list[str]], tuple[list[list[int]], list[bool]]]
"""Titles and texts -> token ids, and whether a row was cut."""


def join_titles(titles: list[str], texts: list[str]) -> list[str]:
    """Each passage as one text, 'title text'."""
    return [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]


def encoder(tokenizer_folder: Path, max_length: int) -> Callable[[list[str]], list[list[int]]]:
    """Texts -> token ids with special tokens, at most `max_length` of them; the rest of a text is cut."""
    encode = make_cutter(tokenizer_folder, max_length)
    return lambda texts: encode(texts)[0]


def make_cutter(tokenizer_folder: Path, max_length: int) -> Callable[..., tuple[list[list[int]], list[bool]]]:
    """As `encoder`, and of each row whether it was cut; a second argument are titles, which stand before the texts as
    first texts of pairs. Of a pair, the longer text is cut first, as SimLM and LexMAE do (`longest_first`); a title
    loses the separators that it spells, since the first one of a row ends the title.
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    separator = tokenizer.sep_token or tokenizer.eos_token

    def encode(texts: list[str], titles: list[str] | None = None) -> tuple[list[list[int]], list[bool]]:
        if not texts:
            return [], []
        pair = (texts,) if titles is None else ([title.replace(separator, " ") for title in titles], texts)
        rows = tokenizer(*pair, truncation=True, max_length=max_length, return_attention_mask=False)
        return [list(row) for row in rows["input_ids"]], [bool(row.overflowing) for row in rows.encodings]

    return encode


def prompt_tokens(tokenizer_folder: Path, prompt: str) -> int:
    """Tokens of a prompt at the beginning of a row, special tokens before it included."""
    tokenizer = load_tokenizer(tokenizer_folder)
    ids = tokenizer(prompt)["input_ids"]
    return len(ids) - (ids[-1] in tokenizer.all_special_ids)


ROW_GROUP = 2048
"""Rows of a Parquet row group: the unit of random access in training and of encoding."""

PASSAGES = pa.schema([("doc_id", pa.string()), ("ids", pa.list_(pa.int32()))])
TOKENISED_QUERIES = pa.schema([("query_id", pa.string()), ("ids", pa.list_(pa.int32())), ("cut", pa.bool_())])
"""`cut`: whether the text had more tokens than `query_length`."""

CUT = b"midmask.cut"
"""Key of a passage shard's footer: how many of its texts had more tokens than `max_length`."""

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class TokensConfig(Config):
    """How texts become token rows."""

    tokenizer: str | None = Field(
        None,
        description="that of a model: minilm, a Hugging Face folder or a cached hub id; none: a WordPiece "
        "vocabulary is trained on the corpus",
    )
    vocabulary_size: int = Field(8192, ge=200, le=1_000_000, description="entries of the trained vocabulary")
    vocabulary_passages: int = Field(
        200_000, ge=1, description="number of passages that the vocabulary is trained on, counted from the first"
    )
    max_length: int = Field(
        128,
        ge=8,
        le=8192,
        description="largest number of tokens of a passage, special tokens included; the rest is cut",
    )
    query_length: int = Field(
        32, ge=4, le=8192, description="largest number of tokens of a query, special tokens included"
    )
    titles: bool = Field(False, description="whether 'title text' is the passage, instead of the text alone")
    title_join: TitleJoin = added(
        "space",
        "how title and text are joined: by a space; by [SEP] (separator); or as a pair, by [SEP] and with token type 1 "
        "for the text, where the backbone has token types. A passage without a title then begins with [CLS] [SEP]",
    )
    query_prompt: str = Field("", max_length=2000, description="words put before each query, such as 'query: '")
    passage_prompt: str = Field("", max_length=2000, description="words put before each passage and its title")

    @model_validator(mode="after")
    def _only_titles_are_joined(self) -> Self:
        if self.title_join != "space" and not self.titles:
            raise ValueError(
                f"title_join = {self.title_join} with titles = false: there is no title to join; set tokens.titles=true"
            )
        return self

    def cut_passages(self, tokenizer_folder: Path) -> CutPassages:
        """Titles and texts of passages -> rows of at most `max_length` tokens.

        Raises:
            UserError: for a tokenizer that cannot join a title as `title_join` says.
        """
        encode, prompt = make_cutter(tokenizer_folder, self.max_length), self.passage_prompt
        if self.title_join != "space":
            _refuse_no_pairs(self, tokenizer_folder)
            return lambda titles, texts: encode(texts, [prompt + title for title in titles])
        return lambda titles, texts: encode(
            [prompt + text for text in (join_titles(titles, texts) if self.titles else texts)]
        )


def _save_tokenizer(config: TokensConfig, inputs: Inputs, out: Place) -> None:
    """Writes `tokenizer/`: that of the tokens artifact `like`, if there is one, else the named one, or one trained on
    the corpus. Does nothing if it is there already.
    """
    whole = "tokenizer.json"
    if (out / "tokenizer" / whole).exists():
        return
    if "like" in inputs:
        tokenizer = load_tokenizer((inputs["like"].place / "tokenizer").local())
    elif config.tokenizer:
        tokenizer = load_tokenizer(model_folder(config.tokenizer, field="tokens.tokenizer"))
    else:
        tokenizer = train_wordpiece(config, inputs["corpus"].place)
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(copy_untruncated(tokenizer), Path(folder))
        (out / "tokenizer").upload(Path(folder), last=whole)


def train_wordpiece(config: TokensConfig, corpus: Place) -> Any:
    """A lower-casing WordPiece tokenizer (Devlin et al. 2019) of at most `vocabulary_size` entries, trained on the
    corpus.

    The library visits words in the order of a randomly seeded hash map and numbers new pieces as it meets them, so
    two runs differ. Here every one-character piece is numbered beforehand, sorted; ties between merges are then
    decided alike.
    """
    from tokenizers import Tokenizer, models, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = _alphabet(config, corpus)
    first = SPECIALS + [f"##{character}" for character in alphabet if character.isalnum()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocabulary_size,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    core = _bert_pipeline(Tokenizer(models.WordPiece(unk_token="[UNK]")))
    core.train_from_iterator(_read_training_texts(config, corpus), trainer)
    trained = _bert_pipeline(Tokenizer(models.WordPiece(core.get_vocab(), unk_token="[UNK]")))
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIALS}
    return PreTrainedTokenizerFast(tokenizer_object=trained, model_max_length=512, **names)


def _bert_pipeline(core: Any) -> Any:
    """BERT's normalisation, words and way back to text; [CLS] text [SEP] once the special tokens have numbers."""
    from tokenizers import decoders, normalizers, pre_tokenizers, processors

    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    if core.token_to_id("[CLS]") is not None:
        ends = [(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        core.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
        )
    return core


def _alphabet(config: TokensConfig, corpus: Place) -> list[str]:
    """The most frequent characters after normalisation, at most 1,000, sorted."""
    from tokenizers import normalizers

    raw: Counter[str] = Counter()
    for texts in _read_training_texts(config, corpus):
        for text in texts:
            raw.update(text)
    normalise = normalizers.BertNormalizer(lowercase=True).normalize_str
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        counts.update({piece: count for piece in normalise(character) if not piece.isspace()})
    frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))[:1000]
    return sorted(frequent)


def _read_training_texts(config: TokensConfig, corpus: Place) -> Iterator[list[str]]:
    left = config.vocabulary_passages
    for name in (corpus / "docs").names():
        for _, titles, texts in read_passages(corpus / "docs" / name):
            if left <= 0:
                return
            yield (join_titles(titles, texts) if config.titles else texts)[:left]
            left -= len(texts)


def _refuse_no_pairs(config: TokensConfig, folder: Path) -> None:
    """Raises UserError for a tokenizer that joins two texts without a separator."""
    if load_tokenizer(folder)("a", "a")["input_ids"].count(Vocabulary.of(folder).sep_id) < 2:
        raise UserError(
            f"tokens.title_join = {config.title_join}: the tokenizer of {config.tokenizer} puts no separator between "
            "two texts; set tokens.title_join=space"
        )


def _shard_writer(config: TokensConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    rows_of = config.cut_passages((out / "tokenizer").local())

    def write(name: str) -> None:
        target, cut = out / "passages" / name, 0
        with writing_table(target, PASSAGES) as writer:
            for ids, titles, texts in read_passages(inputs["corpus"].place / "docs" / name):
                rows, were_cut = rows_of(titles, texts)
                writer.write_table(pa.table({"doc_id": ids, "ids": rows}, schema=PASSAGES), row_group_size=ROW_GROUP)
                cut += sum(were_cut)
            writer.add_key_value_metadata({CUT: str(cut).encode()})

    return write


def _finish(config: TokensConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Tokenises the queries, writes the lengths of all passages in row order, and counts."""
    texts = read_table(inputs["corpus"].place / "queries.parquet")
    encode = make_cutter((out / "tokenizer").local(), config.query_length)
    ids, were_cut = encode([config.query_prompt + text for text in texts["text"].to_pylist()])
    queries = pa.table([texts["query_id"], ids, were_cut], schema=TOKENISED_QUERIES)
    write_table(queries, out / "queries.parquet", row_group_size=ROW_GROUP)
    shards = [out / "passages" / name for name in (out / "passages").names()]
    cut = sum(int(read_metadata(shard).metadata[CUT]) for shard in shards)
    columns = (read_table(shard, ["ids"])["ids"].combine_chunks() for shard in shards)
    lengths = np.concatenate([np.diff(column.offsets.to_numpy()).astype(np.int32) for column in columns])
    (out / "lengths.npy").write_array(lengths)
    vocabulary = Vocabulary.of((out / "tokenizer").local())
    return {
        "passages": len(lengths),
        "queries": len(queries),
        "tokens": int(lengths.sum()),
        "vocabulary": vocabulary.size,
        "cut_share": round(cut / len(lengths), 4),
    }


tokenise = Sharded(folder="passages", over="corpus/docs", begin=_save_tokenizer, worker=_shard_writer, finish=_finish)
"""The step: corpus artifact in, tokens artifact out (tokenizer/, passages/, queries.parquet, lengths.npy).

With a tokens artifact `like`, its tokenizer is used: so a model meets a collection that it was not trained on.
"""
