"""README.md of a bi-encoder's folder: what the model is, where it comes from, and which of its views each library
reads.

Nothing is said that the folder or its maker does not know; above all, no quality.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from midmask.encoders.model_settings import ModelSettings
from midmask.encoders.representation import Representation
from midmask.encoders.text_form import TextForm

Loader = Literal["SentenceTransformer", "SparseEncoder", "MultiVectorEncoder"]


@dataclass(frozen=True)
class Card:
    """Where a model comes from. lineage: name -> value of what made it, such as recipe, corpus, backbone."""

    fingerprint: str | None = None
    lineage: Mapping[str, str] = field(default_factory=dict)


def model_card(facts: ModelSettings, *, loader: Loader | None, routed: bool, card: Card | None) -> str:
    """The text of README.md.

    Args:
        loader: the class of sentence-transformers that the folder is laid out for; none: for none.
        routed: whether queries have an encoder of their own.
    """
    representation = facts.representation
    library = "sentence-transformers" if loader else "transformers"
    made_by = [*([("fingerprint", card.fingerprint)] if card and card.fingerprint else [])]
    made_by += list(card.lineage.items()) if card else []
    sections = [
        f"---\nlibrary_name: {library}\ntags: [midmask, information-retrieval]\n---\n",
        "# A bi-encoder trained with midmask\n",
        f"Views of a text: {views(representation)}. Queries are read up to {facts.query_length} tokens, passages up to "
        f"{facts.passage_length}." + (" Queries have weights of their own." if routed else "") + "\n",
        f"The score of a query and a passage is {_score(representation)}.\n",
        *_pair_lines(facts.form),
        "## What loads it\n",
        *[f"- {line}" for line in _libraries(representation, loader)],
        "- midmask: everything, from `midmask.json`.\n",
        *(["## Made by\n", *[f"- {name}: `{value}`" for name, value in made_by], ""] if made_by else []),
    ]
    return "\n".join(sections)


def _score(representation: Representation) -> str:
    """How two texts are compared, in words."""
    if representation.tokens is not None:
        return "MaxSim: the sum over the query's tokens of the largest dot product with one of the passage's tokens"
    return "the dot product of their views" + (", added up" if representation.dense and representation.lexical else "")


def _pair_lines(form: TextForm) -> list[str]:
    """What whoever encodes passages must know, if title and text are no single text."""
    if form.title_join == "space":
        return []
    prompt = f"`{form.passage_prompt}` and the title" if form.passage_prompt else "the title"
    kind = "1, as tokenizers give it, where the model has token types" if form.title_join == "pair" else "0"
    lines = [f"A passage is a pair of two texts, {prompt} and the passage's text, the latter of token type {kind}."]
    if form.title_join == "pair":
        lines.append("In sentence-transformers: `model.encode([(title, text), …])`.")
    else:
        lines.append(
            'In sentence-transformers: `model.encode([f"{title} [SEP] {text}", …])`, [SEP] standing for what the '
            "tokenizer puts between two texts."
        )
    return [" ".join(lines) + "\n"]


def views(representation: Representation) -> str:
    """The views in words."""
    parts = []
    if representation.tokens is not None:
        parts.append(f"late, a vector of {representation.tokens} dimensions and length 1 for each token")
    if representation.dense is not None:
        dense = {"cls": "the vector of [CLS]", "mean": "the mean of all token vectors"}[representation.dense]
        width = f", projected to {representation.width} dimensions" if representation.width else ""
        parts.append(f"dense, {dense}{width}{', of length 1' if representation.normalise else ''}")
    if representation.lexical is not None:
        weight = {"splade": "log(1 + relu) of the highest logit", "logits": "the highest logit"}[representation.lexical]
        where = "" if representation.specials else ", special tokens' positions left out"
        kept = "; of a query the {} heaviest words, of a passage {}".format(
            *(terms or "all" for terms in (representation.query_terms, representation.passage_terms))
        )
        parts.append(f"lexical, {weight} of each word{where}{kept}")
    return "; and ".join(parts)


def _libraries(representation: Representation, loader: Loader | None) -> list[str]:
    """A line for every other library: its class, and what it sees."""
    lines = ["transformers: `AutoModel`" + (" or `AutoModelForMaskedLM`." if representation.lexical else ".")]
    if loader is None:
        lines.append("sentence-transformers: not as it was trained; its modules cannot give these views.")
    elif representation.dense and representation.lexical:
        lines.append(
            "sentence-transformers: `SentenceTransformer`, the dense view alone; it cannot give the lexical one."
        )
    else:
        lines.append(f"sentence-transformers: `{loader}`, the same vectors.")
    if loader == "SparseEncoder" and representation.query_terms != representation.passage_terms:
        lines.append(
            "`SparseEncoder` keeps one number of words for both sides, so give `max_active_dims` = "
            f"{representation.query_terms} to `encode_query` and {representation.passage_terms} to `encode_document`."
        )
    return lines
