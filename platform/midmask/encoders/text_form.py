"""How a text is written down before it is tokenised: with or without its title, behind which words."""

from pydantic import Field

from midmask.identity import Config


class TextForm(Config):
    """The form of a model's texts (prompts, titles, case), as far as its folder states it."""

    titles: bool | None = Field(None, description="whether 'title text' is a passage; none: not known")
    query_prompt: str = Field("", description="words before each query")
    passage_prompt: str = Field("", description="words before each passage and its title")
    pools_prompt: bool = Field(True, description="whether a prompt's tokens take part in the pooling")
