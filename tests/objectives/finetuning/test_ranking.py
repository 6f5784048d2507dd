"""What all losses of fine-tuning share: gradients that neither chunks nor workers change; the queries' expert. And
listwise training of a cross-encoder against float64 loops.
"""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from midmask.core.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, build_cross_encoder
from midmask.encoders.representation import Representation
from midmask.objectives import ObjectiveConfig, build_objective
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.ranking import PIECE, Ranking, Regularisers, pieces_by_length
from midmask.text.vocabulary import Vocabulary
from midmask.training.loop import accumulate, prepare_model
from midmask.training.optimiser import TrainConfig
from tests.support.encoders.models import LONGEST, write_tokenizer
from tests.support.objectives.ranked import QUERIES, REPRESENTATIONS, TEACHER, batch, build
from tests.support.objectives.texts import small_vocabulary
from tests.support.training.cut import rows_of

# fmt: off
SPARSE = Regularisers(
    query="l1", lambda_query=0.3, passage="flops", lambda_passage=0.2, passage_groups="separate", anti_zero=50.0,
    ramp=0.5)
DISTILLED = {"weight": 0.9, "ce_weight": 0.1}
CASES: dict[str, tuple[ObjectiveConfig, str]] = {
    "hybrid with flops": (Contrastive.Config(temperature=20.0, regularisers=SPARSE), "hybrid"),
    "splade, distilled":
        (Distillation.Config(temperature=3.0, regularisers=SPARSE, **DISTILLED), "splade without specials"),
    "splade's in-batch loss":
        (Contrastive.Config(candidates="positives", temperature=20.0, regularisers=SPARSE), "splade"),
    "late, distilled": (Distillation.Config(temperature=2.0, **DISTILLED), "late"),
}
# fmt: on
LOCAL = Distillation.Config(loss="margin_mse", ce_weight=0.1, candidates="local_negatives", temperature=3.0)
"""Depends on the number of workers, not on how a worker's share is cut."""


def objective(config: ObjectiveConfig, name: str, *, dropout: float = 0.0) -> Ranking:
    built: Ranking = build(config, REPRESENTATIONS[name], dropout=dropout)
    return built


def cut(size: int, first: int = 0, last: int = len(QUERIES)) -> list[Batch]:
    """Queries first … last - 1 in batches of some size, padded no further than they must be."""
    ends = [(at, min(at + size, last)) for at in range(first, last, size)]
    parts = [(rows_of(batch(progress=0.3), *end), TEACHER[slice(*end)]) for end in ends]
    return [replace(part, progress=0.3, teacher=scores) for part, scores in parts]


def step(ranking: Ranking, batches: list[Batch], size: int | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Sums, counts and gradients of a step; each worker's share counts as cut if it is larger than `size`."""
    config = TrainConfig(steps=1, batch_size=2 * len(QUERIES), learning_rate=1e-3, micro_batch=size)
    sums, counts = accumulate(prepare_model(ranking), ranking, config, batches, ())
    found = {name: p.grad.clone() for name, p in ranking.named_parameters() if p.grad is not None}
    ranking.zero_grad(set_to_none=True)
    return sums, counts, found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys() and len(found) > 30
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-9, msg=name)


@pytest.mark.parametrize(("config", "name"), [*CASES.values(), (LOCAL, "projected")], ids=[*CASES, "local negatives"])
def test_chunks_give_the_loss_and_gradient_of_the_whole(config: ObjectiveConfig, name: str) -> None:
    ranking = objective(config, name)
    sums, counts, expected = step(ranking, cut(len(QUERIES)), None)
    for size in (1, 3):
        chunk_sums, chunk_counts, found = step(ranking, cut(size), size)
        torch.testing.assert_close(chunk_sums, sums, rtol=1e-9, atol=1e-9)
        assert torch.equal(chunk_counts, counts)
        assert_same(found, expected)


def one_of_two_workers(rank: int, meeting: str, out: str) -> None:
    """Worker 0 has three queries, in chunks of two and one; worker 1 has one."""
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=limit)
    for case, (config, name) in CASES.items():
        mine = cut(2, *((0, 3) if rank == 0 else (3, 4)))
        torch.save(step(objective(config, name), mine, 2), f"{out}.{case}.{rank}")
    dist.destroy_process_group()


def test_two_workers_give_the_loss_and_gradient_of_one(tmp_path: Path) -> None:
    """FLOPS is not linear in a worker's texts, and the two have three queries and one."""
    names = (str(tmp_path / "meeting"), str(tmp_path / "saved"))
    mp.start_processes(one_of_two_workers, args=names, nprocs=2, start_method="fork")
    for case, (config, name) in CASES.items():
        sums, counts, expected = step(objective(config, name), cut(len(QUERIES)), None)
        workers = [torch.load(tmp_path / f"saved.{case}.{rank}", weights_only=True) for rank in range(2)]
        torch.testing.assert_close(workers[0][0] + workers[1][0], sums, rtol=1e-9, atol=1e-9)
        for _, worker_counts, found in workers:
            assert torch.equal(worker_counts, counts)
            assert_same({key: value for key, value in found.items() if key in expected}, expected)


def test_queries_go_through_their_expert() -> None:
    """Both sides' experts learn in a lexical view too, and each from its own texts."""
    config = BackboneConfig(name="tiny", dropout=0.0, experts="ffn")
    backbone = build_backbone(config, small_vocabulary(), seed=3)
    backbone.represent_as(Representation(lexical="splade"), seed=4)
    ranking: Any = build_objective(Contrastive.Config(), backbone, small_vocabulary())
    drawn = ranking.draw(batch())
    before = ranking.represent(drawn).vectors
    with torch.no_grad():
        for parameter in backbone.experts.parameters():
            parameter.add_(0.05)
    after = ranking.represent(drawn).vectors
    changed = [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]
    assert changed == [True, True, False, False]  # dense and lexical of queries, then of passages


@given(st.lists(st.integers(2, 300), min_size=1, max_size=60))
@settings(max_examples=60)
def test_pieces_hold_every_row_once_and_like_lengths_together(lengths: list[int]) -> None:
    text = TokenRows(torch.zeros(len(lengths), 300), torch.tensor(lengths), torch.zeros(len(lengths)))
    pieces = [(piece.tolist(), longest) for piece, longest in pieces_by_length(text)]
    assert sorted(row for piece, _ in pieces for row in piece) == list(range(len(lengths)))
    assert [lengths[row] for piece, _ in pieces for row in piece] == sorted(lengths)
    room = max(PIECE, len(lengths) * max(lengths) / 8)
    for piece, longest in pieces:
        assert longest == max(lengths[row] for row in piece)
        assert len(piece) == 1 or len(piece) * longest <= room


def test_pieces_change_neither_a_loss_nor_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 passages of 5 to 12 tokens, pieces of at most 18 tokens, against all at once."""
    ranking = objective(*CASES["hybrid with flops"])
    sums, _, expected = step(ranking, [batch(progress=0.3)], None)
    monkeypatch.setattr("midmask.objectives.finetuning.ranking.PIECE", 1)
    assert len(pieces_by_length(batch().texts["passage"])) > 5
    piece_sums, _, found = step(ranking, [batch(progress=0.3)], None)
    torch.testing.assert_close(piece_sums, sums, rtol=1e-9, atol=1e-9)
    assert_same(found, expected)


def test_a_step_in_bf16_scores_in_float32() -> None:
    ranking = objective(*CASES["hybrid with flops"]).float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = ranking(ranking.draw(batch(progress=0.3)))
    exact = ranking(ranking.draw(batch(progress=0.3)))
    for name, part in loss.parts.items():
        assert part.total.dtype == torch.float32
        torch.testing.assert_close(part.total, exact.parts[name].total, rtol=0.05, atol=0.02)


LISTS, LISTED = 3, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), "bert")


def cross_encoder(folder: Path, *, dropout: float = 0.0, r_drop: float = 0.0) -> ListwiseRanking:
    config = ListwiseRanking.Config(max_length=LONGEST, r_drop=r_drop)
    model = build_cross_encoder(BackboneConfig(dropout=dropout), folder, max_length=LONGEST, seed=4)
    torch.manual_seed(6)
    with torch.no_grad():
        for parameter in model.model.classifier.parameters():
            parameter.add_(torch.randn_like(parameter))
    return ListwiseRanking(config, model, Vocabulary.of(folder))


def pairs_batch(queries: int = LISTS, group: int = LISTED, seed: int = 0) -> Batch:
    torch.manual_seed(seed)

    def text(rows: int, longest: int) -> TokenRows:
        lengths_B = torch.randint(3, longest, (rows,))
        ids_BL = torch.randint(5, 40, (rows, int(lengths_B.max())))
        ids_BL[:, 0] = 2
        ids_BL[torch.arange(rows), lengths_B - 1] = 3
        return TokenRows(ids_BL, lengths_B, torch.arange(rows))

    return Batch(0, {"query": text(queries, 8), "passage": text(queries * group, 30)}, group)


def reference_loss(score_N: Tensor, group: int) -> Tensor:
    """The mean over lists of log(sum of exp(z)) - z of the first, in loops and float64."""
    total = torch.zeros((), dtype=torch.float64)
    for start in range(0, len(score_N), group):
        scores = [score.double() for score in score_N[start : start + group]]
        total = total + torch.log(sum(torch.exp(score) for score in scores)) - scores[0]  # type: ignore[arg-type]
    return total / (len(score_N) // group)


def gradients(model: torch.nn.Module) -> dict[str, np.ndarray]:
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    return {name: gradient.double().numpy().copy() for name, gradient in found.items() if gradient is not None}


def test_loss_and_gradients_are_those_of_the_definition(folder: Path) -> None:
    ranking = cross_encoder(folder).eval().double()
    drawn = ranking.draw(pairs_batch())
    loss = ranking(drawn)
    total = loss.total(ranking.counts(drawn))
    total.backward()
    found = gradients(ranking)

    scores = []
    for row in range(LISTS * LISTED):  # one pair at a time, without padding
        length = int(drawn.pairs.lengths_N[row])
        ids, types = drawn.pairs.ids_NL[row : row + 1, :length], drawn.pairs.types_NL[row : row + 1, :length]
        scores.append(ranking.backbone.model(input_ids=ids, token_type_ids=types).logits[0, 0])
    wanted = reference_loss(torch.stack(scores), LISTED)
    wanted.backward()
    assert abs(total.item() - wanted.item()) < 1e-6 and wanted.item() > 0.3
    reference = gradients(ranking)
    assert found.keys() == reference.keys()
    for name, gradient in reference.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-6, err_msg=name)
    assert {name for name, _ in ranking.named_parameters()} - found.keys() == set()
    assert ranking.heads_state() == {}, "all of a cross-encoder outlives its training"


class Fixed(CrossEncoder):
    """Scores as they are given, pass by pass."""

    def __init__(self, passes: list[Tensor]) -> None:
        torch.nn.Module.__init__(self)
        self.passes = iter(passes)

    def forward(self, pairs: Pairs) -> Tensor:
        return next(self.passes)


def test_r_drop_adds_the_divergence_of_two_passes(folder: Path) -> None:
    torch.manual_seed(1)
    passes = [torch.randn(LISTS * LISTED, requires_grad=True) for _ in range(2)]
    ranking = cross_encoder(folder, r_drop=0.7)
    drawn = ranking.draw(pairs_batch())
    ranking.backbone = Fixed(passes)
    counts = ranking.counts(drawn)
    total = ranking(drawn).total(counts)
    total.backward()

    leaves = [values.detach().double().requires_grad_() for values in passes]
    apart = torch.zeros((), dtype=torch.float64)
    for query in range(LISTS):
        lists = [values[query * LISTED : (query + 1) * LISTED] for values in leaves]
        one, other = (torch.exp(values) / torch.exp(values).sum() for values in lists)
        for place in range(LISTED):
            apart = apart + one[place] * torch.log(one[place] / other[place]) / 2
            apart = apart + other[place] * torch.log(other[place] / one[place]) / 2
    wanted = sum(reference_loss(values, LISTED) for values in leaves) / 2 + 0.7 * apart / LISTS
    wanted.backward()  # type: ignore[union-attr]
    assert abs(total.item() - wanted.item()) < 1e-6 and counts == {"listwise": LISTS, "r_drop": LISTS}
    for values, leaf in zip(passes, leaves, strict=True):
        np.testing.assert_allclose(values.grad.numpy(), leaf.grad.numpy(), atol=1e-6)  # type: ignore[union-attr]


def test_two_passes_differ_only_by_dropout(folder: Path) -> None:
    drawn = cross_encoder(folder).draw(pairs_batch())
    for dropout, alike in ((0.0, True), (0.3, False)):
        loss = cross_encoder(folder, dropout=dropout, r_drop=1.0).train()(drawn)
        assert (float(loss.parts["r_drop"].total) < 1e-6) == alike
    assert list(cross_encoder(folder).eval()(drawn).parts) == ["listwise"]
