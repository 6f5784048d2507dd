"""Queries for passages from a sequence-to-sequence model (doc2query, Nogueira & Lin 2019): sampled, yet the same every
time.

Every random number is a hash of (seed, passage, which of its queries, position, token), not a stream: tokens are drawn
by the Gumbel-max trick, the highest of log-probability + noise. So what a passage gets does not depend on the batch it
is in, on the number of actors or on what was generated before; only rounding, which differs with a batch's padding,
could tip a draw.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from midmask.encoders.reading import quiet_transformers
from midmask.errors import UserError
from midmask.identity import Config, runtime
from midmask.randomness.masks import Purpose, draw_seeds, hashes
from midmask.randomness.texts import hash64


class GenerateConfig(Config):
    """How a model writes queries; the defaults are those of query-as-context (CoT-MAE-qc), which takes 20 a passage."""

    top_p: float = Field(
        0.95, gt=0.0, le=1.0, description="draw from the smallest set of tokens that has this probability"
    )
    top_k: int = Field(25, ge=1, le=1000, description="number of most probable tokens to draw from")
    max_tokens: int = Field(
        64, ge=2, le=512, description="largest number of tokens of a query, in the model's own vocabulary"
    )
    passage_tokens: int = Field(512, ge=8, le=8192, description="tokens of a passage that the model reads")
    prefix: str = Field("", description="text put before each passage, such as 'text2query: '")
    seed: int = Field(0, ge=0, description="seed of the generated queries")
    batch_size: int = runtime(64, "queries generated at once", ge=1)


class Generator:
    """A model and its tokenizer, loaded once, on the GPU if there is one."""

    def __init__(self, folder: Path, config: GenerateConfig) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        try:
            with quiet_transformers():
                self._tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
                model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=False, use_safetensors=True)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"pseudo_queries.source = model:{folder}: no sequence-to-sequence model can be read there ({reason})"
            ) from None
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model: Any = model.to(self._device).eval()
        self._config = config

    @torch.inference_mode()
    def queries(self, doc_ids: list[str], texts: list[str], each: int) -> list[list[str]]:
        """`each` queries for every passage; an empty one is left out."""
        keys = torch.from_numpy(hash64(doc_ids, f"queries {self._config.seed}").astype(np.int64))
        queries: list[list[str]] = [[] for _ in texts]
        work = [(passage, copy) for passage in range(len(texts)) for copy in range(each)]
        for start in range(0, len(work), self._config.batch_size):
            batch = work[start : start + self._config.batch_size]
            passages = torch.tensor([passage for passage, _ in batch])
            copies = torch.tensor([copy for _, copy in batch])
            seeds = draw_seeds(keys[passages], Purpose.GENERATE, each).gather(1, copies[:, None]).squeeze(1)
            written = self._write([texts[passage] for passage, _ in batch], seeds)
            for (passage, _), query in zip(batch, written, strict=True):
                queries[passage] += [query.strip()] if query.strip() else []
        return queries

    def _write(self, texts: list[str], seeds_B: Tensor) -> list[str]:
        config = self._config
        rows = self._tokenizer(
            [config.prefix + text for text in texts],
            truncation=True,
            max_length=config.passage_tokens,
            padding=True,
            return_tensors="pt",
        ).to(self._device)
        ids = self._model.generate(
            input_ids=rows["input_ids"],
            attention_mask=rows["attention_mask"],
            logits_processor=[Drawn(seeds_B.to(self._device), config.top_k, config.top_p)],
            do_sample=False,
            num_beams=1,
            max_new_tokens=config.max_tokens,
        )
        return list(self._tokenizer.batch_decode(ids, skip_special_tokens=True))


class Drawn:
    """Makes greedy search a sampler: of each row's likeliest tokens, one is drawn, all others are forbidden.

    seeds_B: int32. Drawn from are the `top_k` likeliest tokens and, of these and by their shares among each other, the
    fewest that reach `top_p`, as Hugging Face's samplers do it.
    """

    def __init__(self, seeds_B: Tensor, top_k: int, top_p: float) -> None:
        self._seeds_B, self._top_k, self._top_p = seeds_B, top_k, top_p

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logits_BK, tokens_BK = scores.float().topk(min(self._top_k, scores.shape[-1]))
        logits_BK = logits_BK.log_softmax(-1)
        before_BK = logits_BK.exp().cumsum(-1) - logits_BK.exp()
        step_B = hashes(self._seeds_B, torch.tensor(input_ids.shape[1], device=scores.device))
        bits_BK = hashes(step_B[:, None], tokens_BK)
        uniform_BK = (((bits_BK >> 8) & 0xFFFFFF).double() + 0.5) * 2.0**-24
        noise_BK = -(-uniform_BK.log()).log()
        chosen_B1 = (logits_BK + noise_BK).masked_fill(before_BK >= self._top_p, -torch.inf).argmax(-1, keepdim=True)
        drawn = torch.full_like(scores, -torch.inf)
        return drawn.scatter_(1, tokens_BK.gather(1, chosen_B1), 0.0)
