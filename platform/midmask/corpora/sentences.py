"""Sentences of a text, by the rules of sentencex; nothing is lost: put end to end they are the text."""

from midmask.identity import library_versions

LANGUAGE = "en"


def sentences(text: str) -> list[str]:
    """The sentences in order, each with the white space that follows it."""
    from sentencex import segment

    return list(segment(LANGUAGE, text))


def splitter() -> dict[str, str]:
    """What decides where sentences end, as a part of an artifact's identity."""
    return library_versions(("sentencex",))
