"""Queries from a tiny random T5: sampled by the right law, and the same whatever the batch."""

from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare

from midmask.artifact import Place
from midmask.derived.generate import Drawn, GenerateConfig, Generator
from midmask.derived.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from tests.support.derived.documents import DOCUMENTS, files, text_of
from tests.support.derived.t5 import write_t5


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("t5")
    write_t5(folder)
    return folder


def queries(t5: Path, numbers: list[int], each: int = 3, **fields: int) -> list[list[str]]:
    generator = Generator(t5, GenerateConfig(max_tokens=8, **fields))
    return generator.queries([f"d{n}" for n in numbers], [text_of(n).lower() for n in numbers], each)


def test_a_passage_gets_the_same_queries_in_any_batch_and_company(t5):
    numbers = list(range(12))
    whole = queries(t5, numbers)
    assert all(len(own) == 3 for own in whole) and len({tuple(own) for own in whole}) == 12
    assert all(len(set(own)) > 1 for own in whole)
    assert queries(t5, numbers, batch_size=1) == whole
    assert queries(t5, numbers, batch_size=7) == whole
    assert queries(t5, [11, 4], batch_size=5) == [whole[11], whole[4]]
    assert [own[:2] for own in whole] == queries(t5, numbers, each=2), "more queries leave the first ones as they are"
    assert queries(t5, numbers, seed=1) != whole


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (50, 0.6)])
def test_tokens_are_drawn_as_hugging_faces_samplers_would(top_k, top_p):
    """Against the chances that its own processors leave. A right sampler fails once in 10,000 choices of the seed."""
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    scores_1V = torch.randn(1, 30, generator=torch.Generator().manual_seed(4)) * 1.5
    ids = torch.zeros(1, 3, dtype=torch.int64)
    left = TopPLogitsWarper(top_p)(ids, TopKLogitsWarper(top_k)(ids, scores_1V.clone()))
    chances = left.softmax(-1)[0]
    draws = 20_000
    seeds_B = torch.arange(draws, dtype=torch.int32) * 7919
    drawn_BV = Drawn(seeds_B, top_k, top_p)(ids.expand(draws, 3), scores_1V.expand(draws, -1))
    assert torch.equal(drawn_BV.isfinite().sum(1), torch.ones(draws, dtype=torch.int64))
    counts = torch.bincount(drawn_BV.argmax(1), minlength=30)
    possible = chances > 0
    assert counts[~possible].sum() == 0 and possible.sum() > 1
    expected = (chances[possible].double() / chances[possible].double().sum() * draws).tolist()
    assert chisquare(counts[possible].tolist(), expected).pvalue > 1e-4


def test_draws_of_a_row_are_independent_over_positions():
    """Correlation of the draws at two positions, fair coins, 20,000 rows: within 4.5 standard errors (1 in 100,000)."""
    scores_BV = torch.zeros(20_000, 2)
    draw = Drawn(torch.arange(20_000, dtype=torch.int32), 2, 1.0)
    first, second = (draw(torch.zeros(1, at, dtype=torch.int64), scores_BV).argmax(1).double() for at in (1, 2))
    correlation = ((first - 0.5) * (second - 0.5)).mean() * 4
    assert abs(float(correlation)) < 4.5 / 20_000**0.5


def test_the_step_generates_for_every_passage(inputs, t5, tmp_path):
    config = PseudoQueriesConfig(
        source=f"model:{t5}", per_passage=2, generate=GenerateConfig(max_tokens=6, batch_size=64)
    )
    assert PSEUDO_QUERIES.stays(config) and not PSEUDO_QUERIES.stays(PseudoQueriesConfig())
    result = PSEUDO_QUERIES(config, inputs, Place(str(tmp_path / "one")))
    assert result["passages"] == DOCUMENTS and result["queries_per_passage"] > 1.9
    other = config.model_copy(update={"generate": GenerateConfig(max_tokens=6, batch_size=9)})
    PSEUDO_QUERIES(other, inputs, Place(str(tmp_path / "other")))
    assert files(tmp_path / "one") == files(tmp_path / "other")
