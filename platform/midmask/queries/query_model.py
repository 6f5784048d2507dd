"""A language model that writes queries for passages: its sampling, and the step that trains one.

It is a sequence-to-sequence model (doc2query, Nogueira & Lin 2019). What another one writes is given as a file.

Every random number is a hash of (seed, passage, which of its queries, position, token), not a stream: tokens are drawn
by the Gumbel-max trick, the highest of log-probability + noise. So what a passage gets does not depend on the batch it
is in, on the number of actors or on what was generated before; only rounding, which differs with a batch's padding,
could tip a draw.

The generator step teaches an encoder-decoder to write the queries of a labelled collection. Its folder is what the
source `model:FOLDER` reads. Loop, checkpoints and the twin on Ray Train are those of fine-tuning, and so are the rows:
a query of the split train with one of its relevant passages.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from midmask.core.config import Config, runtime
from midmask.core.randomness import hash64
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.reading import library_reading, quiet_transformers, read_pretrained, refuse_no_model
from midmask.errors import UserError
from midmask.masking.randomness import Purpose, draw_seeds, hashes
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.store.artifact import Artifact
from midmask.text.vocabulary import largest_id, refuse_tokens_beyond
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.setup import GeneratorSetup


class GenerateConfig(Config):
    """Sampling of queries from a model; the defaults are those of query-as-context (CoT-MAE-qc)."""

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


class QueryGenerator:
    """A model and its tokenizer, loaded once, on the GPU if there is one.

    Args:
        field: the config field that names the folder, for error messages.

    Raises:
        UserError: if the folder has no such model, or lacks weights.
    """

    def __init__(self, folder: Path, config: GenerateConfig, *, field: str = "pseudo_queries.source") -> None:
        self._named = f"{field} = model:{folder}"
        self._config = config
        self._tokenizer, model = self._read(folder)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model: Any = model.to(self._device).eval()
        self._length = config.passage_tokens
        if places := int(getattr(model.get_encoder().config, "max_position_embeddings", 0) or 0):
            # Rows of a table of positions that training has not reached are noise.
            self._length = min(self._length, places, self._tokenizer.model_max_length)

    def _read(self, folder: Path) -> tuple[Any, Any]:
        """Tokenizer and model; runs no code of the folder, and unpickles nothing."""
        import transformers

        refuse_no_model(self._named, folder)
        with library_reading(self._named, "sequence-to-sequence model"), quiet_transformers():
            settings = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
            names = tuple(settings.architectures or ())
            if not settings.is_encoder_decoder:
                raise ValueError(f"it is a {settings.model_type} model{f', {names[0]}' if names else ''}")
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        kind = transformers.AutoModelForSeq2SeqLM
        model, loading = read_pretrained(kind, folder, self._named, use_safetensors=True, dtype="auto")
        if missing := sorted(loading["missing_keys"]):
            raise UserError(f"{self._named}: the file holds no {missing[0]} ({len(missing)} weights are missing)")
        refuse_tokens_beyond(self._named, largest_id(tokenizer), len(model.get_input_embeddings().weight))
        return tokenizer, model

    @torch.inference_mode()
    def queries(self, doc_ids: list[str], texts: list[str], each: int) -> list[list[str]]:
        """Writes `each` queries for every passage; empty ones are left out."""
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
        prefixed = [config.prefix + text for text in texts]
        rows = self._tokenizer(
            prefixed, truncation=True, max_length=self._length, padding=True, return_tensors="pt"
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


class GeneratorConfig(Config):
    """Training of a generator of queries."""

    backbone: BackboneConfig = Field(description="the encoder that it starts from")
    loss: QueryGeneration.Config = Field(
        default_factory=QueryGeneration.Config, description="the loss, and the decoder's depth"
    )
    train: TrainConfig = Field(description="length, batch (queries, each with a passage) and optimiser")
    query_length: int = Field(32, ge=4, description="tokens of a query")
    passage_length: int = Field(128, ge=8, le=512, description="tokens of a passage")


def generator_setup(config: GeneratorConfig, inputs: Mapping[str, Artifact]) -> GeneratorSetup:
    """The setup of a worker that trains a generator. Inputs: tokens, corpus."""
    rows = PairExamples.of(inputs, query_length=config.query_length, passage_length=config.passage_length)
    return GeneratorSetup(
        objective=config.loss, train=config.train, backbone=config.backbone, tokens=rows.tokens, rows=rows
    )
