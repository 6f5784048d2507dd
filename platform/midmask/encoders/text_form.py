"""How a text is written down before it is tokenised: with or without its title, behind which words."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from midmask.identity import Config, added
from midmask.vocabulary import TitleJoin


class TextForm(Config):
    """The form of a model's texts (prompts, titles, case), as far as its folder states it."""

    titles: bool | None = Field(None, description="whether 'title text' is a passage; none: not known")
    title_join: TitleJoin = added("space", "how title and text are joined: space, separator or pair")
    query_prompt: str = Field("", description="words before each query")
    passage_prompt: str = Field("", description="words before each passage and its title")
    pools_prompt: bool = Field(True, description="whether a prompt's tokens take part in the pooling")

    @classmethod
    def of(cls, tokens: Mapping[str, Any]) -> "TextForm":
        """The form of the rows of a tokens artifact, from the config in its record; what that does not name has its
        default.
        """
        return cls(**{name: tokens[name] for name in cls.model_fields if name in tokens})
