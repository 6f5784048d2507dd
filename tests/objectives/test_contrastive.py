"""The contrastive loss against the slow reference, its treatment of known positives, and two workers against one."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.identity import override
from midmask.nouns import Batch, TokenRows
from midmask.objectives.contrastive import Contrastive
from tests.objectives.reference import Reference, assert_same_gradients, log_sum_exp
from tests.objectives.texts import random_texts, small_vocabulary, token_rows

GROUP = 2
QUERIES = random_texts([4, 3, 5], seed=1)
PASSAGES = random_texts([8, 6, 9, 5, 7, 4], seed=2)


def objective(**fields: object) -> Contrastive:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.0), vocabulary, seed=3)
    return Contrastive(override(Contrastive.Config(temperature=20.0), fields), backbone, vocabulary).double()


def batch(queries: list[list[int]] = QUERIES, passages: list[list[int]] = PASSAGES) -> Batch:
    return Batch(0, {"query": token_rows(queries), "passage": token_rows(passages)}, GROUP)


def reference_loss(reference: Reference, config: Contrastive.Config, excluded: set[tuple[int, int]]) -> torch.Tensor:
    """Mean over queries of -log softmax over all passages but the excluded (query, passage) pairs."""

    def vector(text: list[int]) -> torch.Tensor:
        first = reference.encode([2, *text, 3])[0]
        return first / torch.sqrt((first**2).sum()) if config.normalise else first

    passages = [vector(text) for text in PASSAGES]
    losses = []
    for row, text in enumerate(QUERIES):
        query = vector(text)
        kept = [n for n in range(len(passages)) if (row, n) not in excluded]
        scores = {n: query @ passages[n] / config.temperature for n in kept}
        losses.append(log_sum_exp(torch.stack(list(scores.values()))) - scores[row * GROUP])
    return sum(losses) / len(losses)


@pytest.mark.parametrize("fields", [{}, {"normalise": True, "temperature": 0.05}])
def test_loss_and_every_gradient_equal_the_reference(fields: dict[str, object]) -> None:
    contrastive = objective(**fields)
    drawn = contrastive.draw(batch())
    part = contrastive(drawn).parts["contrastive"]
    (part.total / part.count).backward()
    reference = Reference(contrastive, heads=2, layers=2, pad_id=0)
    expected = reference_loss(reference, contrastive.config, set())
    expected.backward()
    assert contrastive.counts(drawn)["contrastive"] == part.count == len(QUERIES)
    torch.testing.assert_close(part.total / part.count, expected, rtol=1e-6, atol=1e-6)
    assert_same_gradients(contrastive, reference)


@pytest.mark.parametrize("drop", [True, False])
def test_known_positives_are_no_negatives(drop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passage 3 repeats the positive of query 0; queries 1 and 2 are the same text with different positives."""
    monkeypatch.setitem(globals(), "PASSAGES", [*PASSAGES[:3], PASSAGES[0], *PASSAGES[4:]])
    monkeypatch.setitem(globals(), "QUERIES", [QUERIES[0], QUERIES[1], QUERIES[1]])
    contrastive = objective(drop_duplicates=drop)
    part = contrastive(contrastive.draw(batch(QUERIES, PASSAGES))).parts["contrastive"]
    reference = Reference(contrastive, heads=2, layers=2, pad_id=0)
    excluded = {(0, 3), (1, 4), (2, 2)} if drop else set()
    expected = reference_loss(reference, contrastive.config, excluded)
    torch.testing.assert_close(part.total.detach() / 3, expected.detach(), rtol=1e-9, atol=1e-9)


def test_loss_does_not_depend_on_padding() -> None:
    contrastive = objective()
    longer = Batch(0, {"query": token_rows(QUERIES, length=20), "passage": token_rows(PASSAGES, length=30)}, GROUP)
    totals = [contrastive(contrastive.draw(b)).parts["contrastive"].total for b in (batch(), longer)]
    torch.testing.assert_close(*totals, rtol=1e-9, atol=1e-9)


def slice_rows(rows: TokenRows, part: slice) -> TokenRows:
    return TokenRows(rows.ids_BL[part], rows.lengths_B[part], rows.keys_B[part])


def one_of_two_workers(rank: int, meeting: str, out: str) -> None:
    """Worker 0 has two queries, worker 1 has one; each saves its sum, its count and its gradients."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    whole = batch()
    queries, passages = ((slice(0, 2), slice(0, 4)), (slice(2, 3), slice(4, 6)))[rank]
    mine = {"query": slice_rows(whole.texts["query"], queries), "passage": slice_rows(whole.texts["passage"], passages)}
    contrastive = objective()
    part = contrastive(contrastive.draw(Batch(0, mine, GROUP))).parts["contrastive"]
    (part.total / 3).backward()
    gradients = {name: p.grad for name, p in contrastive.named_parameters() if p.grad is not None}
    torch.save({"total": part.total.detach(), "count": part.count, "gradients": gradients}, f"{out}.{rank}")
    dist.destroy_process_group()


def test_two_workers_give_the_loss_and_gradient_of_one(tmp_path: Path) -> None:
    mp.spawn(one_of_two_workers, args=(str(tmp_path / "meeting"), str(tmp_path / "saved")), nprocs=2)
    workers = [torch.load(tmp_path / f"saved.{rank}", weights_only=True) for rank in range(2)]
    contrastive = objective()
    part = contrastive(contrastive.draw(batch())).parts["contrastive"]
    (part.total / 3).backward()
    assert [int(worker["count"]) for worker in workers] == [2, 1]
    torch.testing.assert_close(workers[0]["total"] + workers[1]["total"], part.total.detach(), rtol=1e-9, atol=1e-9)
    for name, parameter in contrastive.named_parameters():
        if parameter.grad is not None:
            summed = workers[0]["gradients"][name] + workers[1]["gradients"][name]
            torch.testing.assert_close(summed, parameter.grad, rtol=1e-8, atol=1e-9)
