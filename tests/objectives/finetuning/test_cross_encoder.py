"""Listwise training of a cross-encoder: loss and gradients against float64 loops, R-Drop, micro-batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, build_cross_encoder
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.vocabulary import Vocabulary
from tests.support.encoders.tokenizers import LONGEST, write_tokenizer

QUERIES, GROUP = 3, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), "bert")


def objective(folder: Path, *, dropout: float = 0.0, r_drop: float = 0.0) -> ListwiseRanking:
    config = ListwiseRanking.Config(max_length=LONGEST, r_drop=r_drop)
    model = build_cross_encoder(BackboneConfig(dropout=dropout), folder, max_length=LONGEST, seed=4)
    torch.manual_seed(6)
    with torch.no_grad():
        for parameter in model.model.classifier.parameters():
            parameter.add_(torch.randn_like(parameter))
    return ListwiseRanking(config, model, Vocabulary.of(folder))


def batch(queries: int = QUERIES, group: int = GROUP, seed: int = 0) -> Batch:
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
    ranking = objective(folder).eval().double()
    drawn = ranking.draw(batch())
    loss = ranking(drawn)
    total = loss.total(ranking.counts(drawn))
    total.backward()
    found = gradients(ranking)

    scores = []
    for row in range(QUERIES * GROUP):  # one pair at a time, without padding
        length = int(drawn.pairs.lengths_N[row])
        ids, types = drawn.pairs.ids_NL[row : row + 1, :length], drawn.pairs.types_NL[row : row + 1, :length]
        scores.append(ranking.backbone.model(input_ids=ids, token_type_ids=types).logits[0, 0])
    wanted = reference_loss(torch.stack(scores), GROUP)
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
    passes = [torch.randn(QUERIES * GROUP, requires_grad=True) for _ in range(2)]
    ranking = objective(folder, r_drop=0.7)
    drawn = ranking.draw(batch())
    ranking.backbone = Fixed(passes)
    counts = ranking.counts(drawn)
    total = ranking(drawn).total(counts)
    total.backward()

    leaves = [values.detach().double().requires_grad_() for values in passes]
    apart = torch.zeros((), dtype=torch.float64)
    for query in range(QUERIES):
        lists = [values[query * GROUP : (query + 1) * GROUP] for values in leaves]
        one, other = (torch.exp(values) / torch.exp(values).sum() for values in lists)
        for place in range(GROUP):
            apart = apart + one[place] * torch.log(one[place] / other[place]) / 2
            apart = apart + other[place] * torch.log(other[place] / one[place]) / 2
    wanted = sum(reference_loss(values, GROUP) for values in leaves) / 2 + 0.7 * apart / QUERIES
    wanted.backward()  # type: ignore[union-attr]
    assert abs(total.item() - wanted.item()) < 1e-6 and {name: int(n) for name, n in counts.items()} == {
        "listwise": QUERIES,
        "r_drop": QUERIES,
    }
    for values, leaf in zip(passes, leaves, strict=True):
        np.testing.assert_allclose(values.grad.numpy(), leaf.grad.numpy(), atol=1e-6)  # type: ignore[union-attr]


def test_two_passes_differ_only_by_dropout(folder: Path) -> None:
    drawn = objective(folder).draw(batch())
    for dropout, alike in ((0.0, True), (0.3, False)):
        loss = objective(folder, dropout=dropout, r_drop=1.0).train()(drawn)
        assert (float(loss.parts["r_drop"].total) < 1e-6) == alike
    assert list(objective(folder).eval()(drawn).parts) == ["listwise"]
