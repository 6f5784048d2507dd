"""The end of a job's output, the same for all jobs:

the result in a sentence
the tables
where the model, or what else was made, lies, and three lines of Python that load it
the commands that show it (MLflow's UI, the leaderboard), and the one that makes it again
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midmask.app.job import Options
from midmask.artifact import Place
from midmask.command import same_command
from midmask.redaction import redacted

SETTINGS = "config_sentence_transformers.json"
"""Of a folder that sentence-transformers loads; it names the class."""


@dataclass(frozen=True)
class Product:
    """What a job made. kind: in a word or two, such as `model`. loading: lines of Python; none where no library of ours
    loads it from there.
    """

    kind: str
    place: str
    loading: Sequence[str] = ()


def ending(
    options: Options,
    sentence: str,
    tables: Iterable[str],
    *products: Product,
    further: Mapping[str, str] | None = None,
) -> str:
    """The text.

    Args:
        products: the first is what the job was for.
        further: name -> value of lines below the products.
    """
    parts = [sentence, *tables]
    for product in products:
        loading = [f"    {line}" for line in product.loading]
        parts.append("\n".join([f"{product.kind}: {redacted(product.place)}", *loading]))
    if further:
        parts.append("\n".join(f"{name}: {value}" for name, value in further.items()))
    parts.append(f"{options.where_to_look()}\nmake it again: {same_command()}")
    return "\n\n".join(part for part in parts if part)


def model_product(folder: Place, kind: str = "model") -> Product:
    """A model's folder, and what loads it."""
    if not folder.is_path:
        return Product(kind, folder.uri)
    return Product(kind, folder.uri, _loading_lines(folder))


def _loading_lines(folder: Place) -> list[str]:
    """By the class of sentence-transformers that the folder names, else by its architecture."""
    if (folder / SETTINGS).exists():
        named = (folder / SETTINGS).read_json().get("model_type", "SentenceTransformer")  # before version 5: unnamed
        return _with_sentence_transformers(named, folder)
    (architecture, *_) = (folder / "config.json").read_json().get("architectures") or [""]
    if architecture.endswith("ForSequenceClassification"):
        return [
            "from sentence_transformers import CrossEncoder",
            f"model = CrossEncoder({folder.uri!r})",
            'scores = model.predict([("a query", "a passage")])',
        ]
    auto = "AutoModelForSeq2SeqLM" if architecture.endswith("ForConditionalGeneration") else "AutoModel"
    return [
        f"from transformers import {auto}, AutoTokenizer",
        f"model = {auto}.from_pretrained({folder.uri!r})",
        f"tokenizer = AutoTokenizer.from_pretrained({folder.uri!r})",
    ]


def _with_sentence_transformers(loader: str, folder: Place) -> list[str]:
    return [
        f"from sentence_transformers import {loader}",
        f"model = {loader}({folder.uri!r})",
        'model.similarity(model.encode_query(["a query"]), model.encode_document(["a passage", "another one"]))',
    ]
