"""What every middle training does, whatever its loss: the shortest texts, rows apart from their batch, draws, heads,
health, and what its config says of it; and the two tables, of which a name of one is refused where the other is asked.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from midmask.core.batch import Batch, Part, TokenRows
from midmask.core.config import override
from midmask.errors import UserError
from midmask.experiment.schema import Recipe, recipe_from
from midmask.experiment.stage import StageConfig
from midmask.experiment.steps import FinetuneConfig, PretrainConfig
from midmask.masking.randomness import row_keys
from midmask.objectives import FINETUNING, PRETRAINING, CoupledObjective
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.ranking import Ranking
from midmask.objectives.objective import RowForm
from midmask.objectives.pretraining.mlm import MLM
from midmask.objectives.pretraining.vocabulary_weights import winning_vocabulary
from midmask.objectives.sample import pretraining_batch
from midmask.recipes import RECIPES
from midmask.training.optimiser import TrainConfig
from tests.support.objectives import checks
from tests.support.objectives.texts import batch, batch_for, random_texts, small_vocabulary

SETTINGS: dict[str, dict[str, Any]] = {
    "cotmote": {"backbone": {"experts": "ffn"}},
    "laprador": {"backbone": {"experts": "all"}, "dropout": 0.1},
    **{key: {"dropout": 0.1} for key in ("simcse", "diffcse", "simlm")},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in PRETRAINING}, "retromae, basic": ("retromae", {"decoding": "basic"}),
    "dupmae, paper": ("dupmae", {"bow_head": "projection", "bow_targets": "set", "query_stream": "paper"}),
    "dupmae, code": ("dupmae", {"bow_weight": 0.1, "pool_masked": True, "pool_sep": True}),
    "dupmae, ordinary tokens": ("dupmae", {"decode": "ot"}),
    "lexmae, saturated": ("lexmae", {"bottleneck": "saturated"}), "lexmae, cls": ("lexmae", {"bottleneck": "cls"}),
    "lexmae, off": ("lexmae", {"bottleneck": "off"}),
    "cotmae_v2, pseudo-queries": ("cotmae_v2", {"context": "pseudo_query"}),
    "laprador, one encoder": ("laprador", {"backbone": {}}), "ict, crops": ("ict", {"views": "crops"}),
    "simcse, MLM": ("simcse", {"mlm_weight": 0.1}), "simcse, plain": ("simcse", {"projection": False}),
}  # fmt: skip
"""Methods, and settings of them whose code differs."""
COUPLED = sorted(name for name in PRETRAINING if issubclass(PRETRAINING[name], CoupledObjective))


def built(case: str) -> Any:
    name, changed = CASES[case]
    return checks.build(PRETRAINING[name], **SETTINGS.get(name, {}) | changed)


@pytest.mark.parametrize("case", CASES)
def test_the_shortest_texts_give_finite_gradients(case: str) -> None:
    """Of 0, 1 and 2 tokens, alone and together; and counts are what they were said to be."""
    objective = built(case)
    for lengths in ([0], [1], [0, 1, 2, 6]):
        objective.zero_grad()
        drawn = objective.draw(batch_for(objective.config, lengths, lengths[::-1]))
        counts, loss = objective.counts(drawn), objective(drawn)
        assert {name: int(count) for name, count in counts.items()} == {n: int(p.count) for n, p in loss.parts.items()}
        total = checks.total_of(loss)
        total.backward()
        gradients = [p.grad for p in objective.parameters() if p.grad is not None]
        assert all(bool(value.isfinite().all()) for value in (total, *gradients, *objective.health(drawn).values()))


def row_of(whole: Batch, row: int) -> Batch:
    """One row, without padding."""

    def part(text: TokenRows) -> TokenRows:
        rows, length = slice(row, row + 1), int(text.lengths_B[row])
        weights = None if text.weights_BL is None else text.weights_BL[rows, :length]
        return TokenRows(text.ids_BL[rows, :length], text.lengths_B[rows], text.keys_B[rows], weights)

    teacher = None if whole.teacher is None else whole.teacher[row : row + 1]
    return replace(whole, texts={name: part(text) for name, text in whole.texts.items()}, teacher=teacher)


def apart(objective: Any, read: Batch) -> tuple[dict[str, Part], tuple[Tensor, ...]]:
    """The parts in which no two rows meet, and the vectors of rows that are compared."""
    drawn = objective.draw(read)
    if not isinstance(objective, CoupledObjective):
        return objective(drawn).parts, ()
    rows = objective.represent(drawn)
    return rows.parts(), rows.vectors


@pytest.mark.parametrize("case", CASES)
def test_a_row_is_alone_what_it_is_in_a_batch(case: str) -> None:
    """What is drawn, its vectors and its share of each sum; padding and neighbours change nothing."""
    objective = built(case).eval()
    whole = batch_for(objective.config, [30, 5, 12, 21], [7, 19, 5, 11])
    parts, vectors = apart(objective, whole)
    alone = [apart(objective, row_of(whole, row)) for row in range(4)]
    assert vectors or all(part.count > 0 for part in parts.values()) or case == "dupmae, ordinary tokens"
    for name, part in parts.items():
        pieces = [row[0][name] for row in alone]
        assert sum(piece.count for piece in pieces) == part.count
        torch.testing.assert_close(sum(piece.total for piece in pieces), part.total, rtol=1e-9, atol=1e-9)
    for number, together in enumerate(vectors):
        torch.testing.assert_close(torch.cat([row[1][number] for row in alone]), together, rtol=1e-9, atol=1e-9)


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(None if field.name == "keys_B" else getattr(value, field.name))
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


@pytest.mark.parametrize("case", [*PRETRAINING, "ict, crops", "simcse, MLM", "retromae, basic"])
def test_draws_depend_on_keys_alone(case: str) -> None:
    """Also while a generator's dropout is on; three methods draw nothing."""
    objective = built(case).train()
    read = batch_for(objective.config, [30, 5, 12, 21], [17, 19, 15, 11])
    first = list(tensors(objective.draw(read)))
    torch.manual_seed(99)
    assert all(torch.equal(one, other) for one, other in zip(first, tensors(objective.draw(read)), strict=True))
    epoch = {name: replace(text, keys_B=row_keys(7, 1, np.arange(4))) for name, text in read.texts.items()}
    other = tensors(objective.draw(replace(read, texts=epoch)))
    same = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert same == (case in ("simcse", "weak_pairs", "distil_vectors"))


HEADS: dict[str, set[str]] = {
    **{key: {"decoder"} for key in ("retromae", "dupmae", "cotmae")},
    **{key: {"head"} for key in ("condenser", "cocondenser")},
    **{key: {"causal_decoder"} for key in ("cotmae_qc", "cotmote", "seed")},
    "lexmae": {"bias", "decoder", "norm", "transform"}, "cotmae_v2": {"causal_decoder", "decoder"},
    "master": {"decoders"}, "simlm": {"decoder", "generator"}, "tsdae": {"attentions"}, "simcse": {"projection"},
    "diffcse": {"discriminator", "generator", "projector"}, "laprador": {"cache_KD", "cached"},
    "dupmae, paper": {"decoder", "projection"}, "dupmae, ordinary tokens": set(),
    "simcse, plain": set(), "distil_vectors": {"teacher_projection"},
}  # fmt: skip
"""What is dropped after training, by the first part of its name; of others nothing."""


@pytest.mark.parametrize("case", [case for case in CASES if case in PRETRAINING or case in HEADS])
def test_heads_are_dropped_and_come_back(case: str) -> None:
    objective, other = built(case), built(case)
    state = {name: tensor.clone() for name, tensor in objective.heads_state().items()}
    assert {name.partition(".")[0] for name in state} == HEADS.get(case, HEADS.get(CASES[case][0], set()))
    assert all(name in state or name.startswith("backbone.") for name in objective.state_dict())
    for tensor in other.heads_state().values():
        tensor.add_(1)
    first = dict.fromkeys(list(state)[:1], torch.zeros(7, 7, 7))
    assert other.take_over({**state, **first, "strange.weight": torch.zeros(2)}) == list(state)[1:]
    assert other.take_over(state) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in other.heads_state().items())


HEALTH: dict[str, dict[str, str]] = {
    **{key: {"decoder_loss": "decoder_mlm"} for key in ("retromae", "lexmae", "cotmae", "dupmae")},
    **{key: {"decoder_loss": "decoder_clm"} for key in ("cotmae_qc", "seed", "tsdae")},
    "condenser": {"decoder_loss": "head_mlm"}, "simlm": {"decoder_loss": "decoder_rlm"},
    "cotmae_v2": {"ae_loss": "ae_mlm", "ar_loss": "ar_clm"},
    "master": {f"{name}_loss": f"decoder_{name}_mlm" for name in ("keyword", "query", "second", "dual")},
    "diffcse": {"discriminator_loss": "replaced"}, "lexmae, cls": {"decoder_loss": "decoder_mlm"},
    **{key: {} for key in ("lexmae, off", "dupmae, ordinary tokens")},
}  # fmt: skip
"""Method -> how a loss behind a vector is named in its health, and the part that it is."""
WINNERS = ("lexmae", "dupmae", "dupmae, ordinary tokens")
MORE = {key: {"winning_vocabulary"} for key in WINNERS}


@pytest.mark.parametrize("name", HEALTH)
@torch.no_grad()
def test_health_compares_a_decoder_with_and_without_its_vector(name: str) -> None:
    """Its loss is as in training, and another if all texts share one vector."""
    objective = built(name).eval()
    drawn = objective.draw(batch_for(objective.config, [9, 6, 12, 20], [7, 19, 5, 11]))
    health, parts = objective.health(drawn), objective(drawn).parts
    assert set(health) == {n + end for n in HEALTH[name] for end in ("", "_without_vector")} | MORE.get(name, set())
    for found, part in HEALTH[name].items():
        torch.testing.assert_close(health[found], parts[part].total / parts[part].count)
        assert abs(health[f"{found}_without_vector"] - health[found]) > 1e-9


@pytest.mark.parametrize("case", WINNERS)
@torch.no_grad()
def test_the_winning_vocabulary_is_that_of_the_pooled_logits(case: str) -> None:
    objective = built(case).eval()
    drawn, backbone = objective.draw(batch_for(objective.config, [9, 6, 12, 20], [])), objective.backbone
    features = backbone.transform(backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B))
    logits = features @ backbone.output_weight_VD.t() + backbone.output_bias_V
    pooled = torch.stack([row[there].max(0).values for row, there in zip(logits, drawn.pooled_BL, strict=True)])
    assert objective.health(drawn)["winning_vocabulary"] == winning_vocabulary(pooled)


@pytest.mark.parametrize("name", ["simcse", "laprador", "diffcse"])
def test_two_passes_that_only_dropout_tells_apart_need_it(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name}: backbone\.dropout = 0, .* set backbone\.dropout=0\.1"):
        checks.build(PRETRAINING[name], **{**SETTINGS[name], "dropout": 0.0})


WEIGHTED = {"encoder_mask": "weighted"}
ROW_FORMS: list[tuple[str, dict[str, Any], RowForm]] = [
    ("mlm", {}, RowForm()), ("retromae", WEIGHTED, RowForm(term_weights=True)), ("rom", {}, RowForm(term_weights=True)),
    ("simcse", WEIGHTED, RowForm()), ("simcse", {**WEIGHTED, "mlm_weight": 0.1}, RowForm(term_weights=True)),
    ("cocondenser", WEIGHTED, RowForm(rows="spans", term_weights=True)),
    ("cotmae", {**WEIGHTED, "context": "nearby"}, RowForm(rows="spans", context="nearby", term_weights=True)),
    ("cotmae", {}, RowForm(rows="spans", context="mixed")), ("cotmae_v2", {}, RowForm(rows="spans", context="mixed")),
    ("cotmae_v2", {**WEIGHTED, "context": "pseudo_query"}, RowForm(rows="pseudo_queries", term_weights=True)),
    ("cotmae_qc", WEIGHTED, RowForm(rows="pseudo_queries", term_weights=True)),
    ("cotmote", {}, RowForm(rows="pseudo_queries")), ("master", {}, RowForm(rows="pseudo_queries", term_weights=True)),
    ("spider", {}, RowForm(rows="spans", context="recurring")), ("weak_pairs", {}, RowForm(rows="pseudo_queries")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changed", "form"), ROW_FORMS)
def test_what_it_reads_follows_from_its_fields(name: str, changed: dict[str, Any], form: RowForm) -> None:
    assert override(PRETRAINING[name].Config(), changed).row_form() == form


# fmt: off
SENSELESS: list[tuple[str, str, Any]] = [
    ("cotmae", "context", "any"), ("cotmae_v2", "context", "neighbour"), ("cotmae_qc", "window", 0),
    ("seed", "window", 0), ("cotmote", "views", "neither"), ("cotmote", "decoder_layers", 0),
    ("cotmote", "encoder_mask", "weighted"), ("condenser", "skip_from", 0), ("spider", "shortest_phrase", 60),
    ("spider", "shortest_window", 60), ("bow", "bow_weight_end", -0.1), ("retromae", "encoder_mask_ratio", 1.7),
    ("retromae", "decoder_mask_ratio", 0.0), ("rom", "encoder_mask", "word"), ("rom", "mask_temperature", -1.0),
]
# fmt: on


CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("lexmae", {"decoder_mask_ratio": 0.2}, "overlap = inclusive: .*at least encoder_mask_ratio = 0.3"),
    ("lexmae", {"decoder_mask_ratio": 0.8, "overlap": "exclusive"}, "at most 1 - encoder_mask_ratio = 0.3"),
    ("dupmae", {"bow_weight": 0.0}, "greater than 0"),
    *((name, {"decoder_layers": 2}, "needs decoding = basic") for name in ("retromae", "dupmae")),
    ("ict", {"shortest": 0.6}, r"shortest = 0\.6 is more than longest = 0\.5"),
    ("simlm", {"decoder_mask_ratio": 0.2}, r"decoder_mask_ratio = 0\.2 is below encoder_mask_ratio = 0\.3"),
]


@pytest.mark.parametrize(("name", "changed", "message"), CONTRADICTIONS)
def test_fields_that_contradict_each_other_are_refused(name: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(PRETRAINING[name].Config(), changed)


@pytest.mark.parametrize(("name", "field", "value"), SENSELESS)
def test_a_value_that_makes_no_sense_is_refused_by_name(name: str, field: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{field} = '?{value}"):
        override(PRETRAINING[name].Config(), {field: value})


@pytest.mark.parametrize(("name", "share"), [("mlm", 0.15), ("seed", 0.15), ("diffcse", 0.3)])
def test_the_published_share_of_tokens_is_hidden(name: str, share: float) -> None:
    """4,000 tokens: 5 standard deviations of a binomial."""
    drawn = built(name).draw(batch(random_texts([100] * 40)))
    labels = (drawn if name == "mlm" else drawn.encoder if name == "seed" else drawn.masked).labels_R
    assert checks.z_score(len(labels), 8000 if name == "diffcse" else 4000, share) < 5


def terms(config: Any, rows: int) -> dict[str, float]:
    """Name -> weighted sum of each term of the loss that has a target."""
    objective = checks.build(PRETRAINING[config.name], **{"dropout": 0.1, **config.model_dump(exclude={"name"})})
    drawn = objective.draw(pretraining_batch(config, small_vocabulary(), rows=rows, length=24))
    parts = objective(drawn).parts
    return {name: float(part.weight * part.total.detach()) for name, part in parts.items() if int(part.count)}


@pytest.mark.parametrize("name", PRETRAINING)
def test_a_loss_without_terms_is_refused(name: str) -> None:
    """With every factor of a term that may be 0 at 0."""
    factors = {
        field: 0.0
        for field, info in PRETRAINING[name].Config.model_fields.items()
        if field.endswith(("_weight", "_weight_end"))
        and all(getattr(rule, "gt", None) is None for rule in info.metadata)
    }
    config = PRETRAINING[name].Config(**factors)
    if any(terms(config, 4).values()) or name == "spider":  # whose made-up rows share no phrase
        config.check_learns(4)
    else:
        with pytest.raises(UserError, match=r"objective\.\w+_weight.* = 0: no term"):
            config.check_learns(4)


@pytest.mark.parametrize("name", COUPLED)
def test_a_method_whose_rows_meet_says_so(name: str) -> None:
    """With one row its contrastive term is 0; where rows meet in a regulariser alone, a row has a loss without it."""
    config = PRETRAINING[name].Config()
    assert config.compares_rows == (name != "distil_vectors")
    of_one_row = terms(config, 1)
    assert of_one_row.get("contrastive", 0.0) == of_one_row.get("spread", 0.0) == 0.0


TRAIN = TrainConfig(steps=1, batch_size=1, learning_rate=1e-3)


def test_each_name_is_in_one_table_and_is_its_own_configs() -> None:
    assert not set(PRETRAINING) & set(FINETUNING)
    for name, entry in {**PRETRAINING, **FINETUNING}.items():
        assert entry.Config.model_fields["name"].default == name
        assert issubclass(entry, Ranking) == (name in FINETUNING)


@pytest.mark.parametrize(
    ("field", "name", "says", "other"),
    [("objective", "contrastive", "objective 'contrastive'.*retromae", "distillation"),
     ("stages.0.loss", "mlm", "loss 'mlm'.*contrastive, distillation", "retromae"),
     ("objective", "retromea", "retromae", "contrastive"), ("stages.0.loss", "contrast", "distillation", "retromae"),
     ("objective", None, "retromae", "contrastive"), ("stages.0.loss", None, "distillation", "retromae")],
)  # fmt: skip
def test_a_name_of_another_table_is_refused_with_those_of_its_own(field, name, says, other) -> None:
    changes: list[dict[str, Any]] = [{field: {"seed": 3} if name is None else {"name": name}}]
    changes += [] if name is None else [{f"{field}.name": name}]
    for change in changes:
        with pytest.raises(UserError, match=says) as refused:
            override(RECIPES["retromae"](), change)
        assert other not in str(refused.value)


def test_configs_are_refused_as_their_fields_are() -> None:
    fields = RECIPES["none"]().model_dump()
    for wrong in (Contrastive.Config(), ListwiseRanking.Config()):
        with pytest.raises(UserError, match=wrong.name):
            Recipe.model_validate({**fields, "objective": wrong})
        with pytest.raises(UserError, match=wrong.name):
            PretrainConfig(backbone=RECIPES["none"]().backbone, objective=wrong, train=TRAIN)
    with pytest.raises(UserError, match="'mlm'"):
        StageConfig.model_validate({"loss": MLM.Config(), "train": TRAIN})


def test_a_finished_fine_tuning_is_read_from_its_record_with_all_fields_of_its_loss() -> None:
    loss = FINETUNING["distillation"].Config(loss="kl", ce_weight=0.01)
    config = FinetuneConfig(backbone=RECIPES["none"]().backbone, loss=loss, train=TRAIN)
    assert FinetuneConfig.model_validate(config.model_dump(mode="json")) == config


def test_every_recipe_survives_its_own_fields() -> None:
    for make in RECIPES.values():
        assert recipe_from(make().model_dump()) == make()
