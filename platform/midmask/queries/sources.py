"""Names of sources, each `KIND`, `KIND:PLACE` or the URL of a server, and fingerprints of what lies at their places."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from midmask.core.config import model_content
from midmask.corpora.documents.passages import splitter
from midmask.errors import UserError
from midmask.store.place import Place


def kind_and_place(source: str) -> tuple[str, str]:
    """A source's kind (`titles`, …, `file`, `model`, `http`) and its path or URL, "" if it has none."""
    if source.startswith(("http://", "https://")):
        return "http", source
    kind, _, place = source.partition(":")
    return kind, place


def canonical(source: str, choices: Sequence[str]) -> str:
    """One name for each source: paths absolute, since workers run in other folders; a server by its URL.

    Args:
        choices: as people are told them: KIND, `file:PATH`, `model:FOLDER`, `http:URL`.

    Raises:
        ValueError: if the source is none of the choices.
    """
    kind, place = kind_and_place(source)
    has_place = {choice.partition(":")[0] for choice in choices if ":" in choice}
    if kind == "http" and kind in has_place and place.startswith(("http://", "https://")):
        return place
    if kind in has_place - {"http"} and place:
        return source if "://" in place else f"{kind}:{Path(place).expanduser().absolute()}"
    if source in choices and kind not in has_place:
        return source
    raise ValueError(f"there is no source {source!r}; choose {', '.join(choices[:-1])} or {choices[-1]}")


def source_content(source: str, field: str) -> dict[str, Any]:
    """What decides a source's texts besides its name: its file, its model's files, or the splitter of sentences.

    Raises:
        UserError: if the file or the model is not there.
    """
    kind, place = kind_and_place(source)
    if kind == "file":
        return {"file": file_content(place, f"{field} = {source}")}
    if kind == "model":
        return dict(model_content(Path(place), field))
    return splitter() if kind == "sentences" else {}


def file_content(path: str, named: str) -> str:
    """A file's fingerprint.

    Args:
        named: the field and its value, for the error's text.

    Raises:
        UserError: if there is no such file.
    """
    if not Place(path).exists() or Place(path).is_folder():
        raise UserError(f"{named}: there is no such file")
    return Place(path).digest()


class Sourced:
    """A config whose field `source` is KIND, or KIND:PLACE."""

    source: str
    SECTION: ClassVar[str]  # of the recipe that the config is

    @property
    def kind(self) -> str:
        return kind_and_place(self.source)[0]

    @property
    def place(self) -> str:
        """The path of a file or model; empty where the source has none."""
        return kind_and_place(self.source)[1]

    def content(self) -> dict[str, Any]:
        """Fingerprints of the source's files, as a part of the artifact's identity.

        Raises:
            UserError: if the file or the model is not there.
        """
        return source_content(self.source, f"{self.SECTION}.source")
