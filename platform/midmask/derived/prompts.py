"""Prompts of causal models: what is put around a passage, and where an answer ends."""

from collections.abc import Sequence
from typing import Any

PASSAGE = "{passage}"
"""What stands for the passage in a prompt."""


class Prompt:
    """A prompt and the tokenizer of a causal model, whose chat template is used if it has one.

    length: tokens of the prompt without a passage.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._is_chat = bool(tokenizer.chat_template)
        tokenizer.padding_side = "left"  # an answer follows its prompt
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
        self.length = len(self._encode([self._write("")])["input_ids"][0])

    def rows(self, texts: Sequence[str], length: int) -> Any:
        """Prompts with passages of at most `length` tokens, padded on the left: input_ids and attention_mask, [B, L].

        A passage is cut before it is put in, so that the words behind it stay.
        """
        prompts = [self._write(self._cut(text, length)) for text in texts]
        return self._encode(prompts, padding=True, return_tensors="pt")

    def _cut(self, text: str, length: int) -> str:
        found = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return text if len(found) <= length else text[: found[length - 1][1]]

    def _write(self, text: str) -> str:
        asked = self._template.replace(PASSAGE, text)
        if not self._is_chat:
            return asked
        message = [{"role": "user", "content": asked}]
        return str(
            self._tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        )

    def _encode(self, prompts: list[str], **options: Any) -> Any:
        """A chat template writes the special tokens itself."""
        return self._tokenizer(prompts, add_special_tokens=not self._is_chat, **options)


def find_line_breaks(tokenizer: Any) -> list[int]:
    """The tokens of a vocabulary whose text has a line break, in order."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return [token for token, text in enumerate(texts) if "\n" in text]


def ends_of(model: Any, tokenizer: Any, breaks: Sequence[int]) -> dict[str, Any]:
    """The arguments of `generate` that end an answer at the end of its line."""
    own = model.generation_config.eos_token_id
    ends = [own] if isinstance(own, int) else list(own or ())
    ends += [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    return {"eos_token_id": sorted({*ends, *breaks}), "pad_token_id": tokenizer.pad_token_id}
