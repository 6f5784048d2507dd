"""What keeps lexical vectors sparse: FLOPS, L1 and the anti-zero term, added to the loss of fine-tuning.

FLOPS      sum over words of (mean over texts of |weight|)²        Paria et al. 2020; it spreads words evenly
L1         sum over words of the mean over texts of |weight|
anti-zero  1 / S_q² + 1 / S_p², S the sum of all weights of all queries, and of all passages (SPLADE's trainer); next to
           nothing unless all vectors go to 0, and infinite when they have
λ          times min(t / ramp, 1)², t the share of the run that is done: SPLADE's quadratic schedule, whose T = 50,000
           of 150,000 steps is ramp = 0.333; 0: constant, as in Lassance et al. 2023

Means are over the texts of all workers and micro-batches: FLOPS is no mean of what each has alone (Tevatron's issue 36
saw a sparsity 2 to 4 times another on several GPUs). Both act on what is scored, thus after pruning.

differs    with two kinds of regularisers SPLADE's first trainer adds the first one twice. In its "efficient" configs
           (L1 on queries, FLOPS on passages) that is FLOPS, so that a printed lambda of passages is in effect doubled.
           Here each term counts once: for those configs, double lambda_passage

Shapes: B texts of this worker, Q queries, N passages, V vocabulary, C groups of texts.
"""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from midmask import distributed as world
from midmask.batch import Part
from midmask.identity import Config

PARTS = ("query_regulariser", "passage_regulariser", "anti_zero", "query_terms", "passage_terms")
"""Terms of the loss; the last two have weight 0 and only say how many words of a text have a weight."""


class Regularisers(Config):
    """How sparse the lexical view of each side is made; its default leaves it alone."""

    query: Literal["flops", "l1"] | None = Field(
        None, description="regulariser of the queries' lexical vectors; none: no regulariser"
    )
    passage: Literal["flops", "l1"] | None = Field(
        None, description="regulariser of the passages' lexical vectors; none: no regulariser"
    )
    lambda_query: float = Field(0.0, ge=0.0, description="factor of the queries' term; 0: the term is only logged")
    lambda_passage: float = Field(0.0, ge=0.0, description="factor of the passages' term; 0: the term is only logged")
    passage_groups: Literal["joint", "separate"] = Field(
        "joint",
        description="joint: one mean over all passages (sentence-transformers); separate: the average of the term over "
        "positives and that over negatives (SPLADE's first trainer)",
    )
    anti_zero: float = Field(0.0, ge=0.0, description="factor of the term that is infinite where all weights are 0")
    ramp: float = Field(0.0, ge=0.0, le=1.0, description="share of the run in which the factors rise, by its square")

    @model_validator(mode="after")
    def _factors_have_a_term(self) -> Self:
        for side in ("query", "passage"):
            if getattr(self, f"lambda_{side}") and getattr(self, side) is None:
                raise ValueError(f"lambda_{side} = {getattr(self, f'lambda_{side}')} needs {side} = flops or l1")
        return self

    @property
    def acts(self) -> bool:
        """Whether there is anything to compute."""
        return self.query is not None or self.passage is not None or self.anti_zero > 0

    def part_names(self) -> tuple[str, ...]:
        """The parts that this gives of lexical vectors."""
        given = (self.query is not None, self.passage is not None, self.anti_zero > 0, True, True)
        return tuple(name for name, is_given in zip(PARTS, given, strict=True) if is_given)

    def ramp_factor(self, progress: Tensor) -> Tensor | float:
        """What λ is multiplied by when so much of the run, [] in [0, 1), is done."""
        return (progress / self.ramp).clamp(max=1.0).square() if self.ramp else 1.0


def regularising_parts(
    config: Regularisers, query_QV: Tensor, passage_NV: Tensor, *, group: int, progress: Tensor
) -> dict[str, Part]:
    """The terms that act on the lexical vectors of all workers' texts. This worker answers for as much of each as it
    has of the texts, so that their sum over workers, divided by the number of all texts, is the term.

    Args:
        group: passages a query; the first of each group is its positive.
        progress: share of the run that is done, [].
    """
    passages = [passage_NV]
    if config.passage_groups == "separate" and group > 1:
        first_N = torch.arange(len(passage_NV), device=passage_NV.device) % group == 0
        passages = [passage_NV[first_N], passage_NV[~first_N]]
    factor = config.ramp_factor(progress)
    parts = {"query_terms": _terms(query_QV), "passage_terms": _terms(passage_NV)}
    if config.query is not None:
        value = _term(config.query, [query_QV])
        parts["query_regulariser"] = _share(value, query_QV, config.lambda_query * factor)
    if config.passage is not None:
        value = _term(config.passage, passages)
        parts["passage_regulariser"] = _share(value, passage_NV, config.lambda_passage * factor)
    if config.anti_zero:
        sums = world.all_sum_with_gradient(torch.stack([query_QV.abs().sum(), passage_NV.abs().sum()]))
        parts["anti_zero"] = _share(sums.square().reciprocal().sum(), query_QV, config.anti_zero)
    return {name: parts[name] for name in PARTS if name in parts}


def _term(kind: Literal["flops", "l1"], groups: list[Tensor]) -> Tensor:
    """FLOPS or L1 of each group of texts, averaged over the groups; []."""
    sums_CV = world.all_sum_with_gradient(torch.stack([group_BV.abs().sum(0) for group_BV in groups]))
    texts_C = world.all_sum(torch.tensor([len(group_BV) for group_BV in groups], device=sums_CV.device))
    mean_CV = sums_CV / texts_C[:, None]
    return (mean_CV.square() if kind == "flops" else mean_CV).sum(1).mean()


def _share(value: Tensor, weights_BV: Tensor, weight: Tensor | float) -> Part:
    """This worker's share of a value that all workers compute alike."""
    texts = len(weights_BV)
    return Part(value * texts, torch.tensor(texts, device=value.device), weight)


def _terms(weights_BV: Tensor) -> Part:
    """How many words of a text have a weight."""
    texts = torch.tensor(len(weights_BV), device=weights_BV.device)
    return Part(weights_BV.detach().count_nonzero().to(weights_BV.dtype), texts, 0.0)
