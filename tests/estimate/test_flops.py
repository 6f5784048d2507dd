"""FLOPs and memory against formulas by hand and real tensors (more in tests/system); each kind of step's charge."""

from typing import Any, ClassVar, Literal

import pytest
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from midmask import objectives
from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.core.config import override
from midmask.core.registry import Registry
from midmask.encoders.backbone import Backbone, BackboneConfig
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, Template
from midmask.encoders.reading import sized_settings
from midmask.encoders.representation import Representation
from midmask.encoders.seq2seq import build_seq2seq
from midmask.estimate import as_text, estimate, shape_named
from midmask.estimate.charges import Charge, Charges
from midmask.estimate.counting import Row, count_encoding, count_scoring
from midmask.estimate.rates import CODES_PER_SECOND, RANKED_BYTES
from midmask.estimate.sizes import encoder_sizes
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan, rungs
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.objectives import FINETUNING, PRETRAINING
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.objective import Objective, ObjectiveConfig
from midmask.objectives.sample import finetuning_batch, full_rows
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.artifact import load
from midmask.store.place import Place
from midmask.text.vocabulary import Vocabulary
from midmask.training.optimiser import TrainConfig, build_optimiser
from tests.support.benchmark.tiny import SPLITS, short, write_collection
from tests.support.estimate.counted import (
    DENSE,
    LENGTH,
    TINY,
    WORDS,
    V,
    backbone,
    count_flops,
    counted,
    finetuning_step,
    kept_bytes,
    learn,
    pretraining_step,
    reckoned,
)

INNER, LAYERS = 512, 2
LATE = Representation(dense=None, tokens=32)


def layer(tokens: int, width: int, inner: int) -> int:
    """FLOPs of a BERT layer, forward: four matrices of attention, two of the feed-forward layer, scores and sums."""
    return 2 * (4 * width**2 + 2 * width * inner) * tokens + 4 * tokens**2 * width


def head(targets: float, width: int, vocabulary: int) -> float:
    """The MLM head: a square matrix, then the output matrix."""
    return 2 * (width + vocabulary) * width * targets


def test_a_masked_lm_of_berts_size_by_hand():
    """0.15 of 128 tokens are 19; a training step costs three forward passes."""
    config = PRETRAINING["mlm"].Config(encoder_mask_ratio=0.15)
    forward = 12 * layer(128, 768, 3072) + head(19, 768, 30_522)
    own = counted(config, Row(128), on=BackboneConfig(name="base"), size=30_522)
    assert own.row == pytest.approx(3 * forward, rel=0.005)


def test_rows_that_meet_are_counted_as_pairs():
    """Two spans a row, each held against all spans: 4 products of B x B vectors, three times; a masked LM has none."""
    meeting, apart = (counted(PRETRAINING[name].Config(), Row(LENGTH, LENGTH)) for name in ("cocondenser", "condenser"))
    assert meeting.pair == 3 * 4 * 2 * D and meeting.first_pass == pytest.approx(2 * LAYERS * layer(LENGTH, D, INNER))
    assert (apart.pair, apart.first_pass) == (0, 0)


def test_in_batch_negatives_by_hand():
    """Each query is held against the 4 passages of every query: a product of width D, forward and twice backward. By
    tokens, 16 of each query with all tokens of the passages: forward, again, and twice backward."""
    config, row = FINETUNING["contrastive"].Config(), Row(LENGTH, 16, group=4)
    assert counted(config, row).pair == 3 * 2 * D * 4
    late = counted(config, row, scored=LATE)
    assert late.is_whole and late.pair == 4 * 2 * 32 * 16 * 4 * LENGTH


def test_the_vector_of_the_first_token_needs_no_other_tokens_last_layer():
    """Of the last layer: its query and output, products with all tokens' states (per head, D wide), feed-forward."""
    heads = D // 64
    last = 2 * 2 * heads * D * LENGTH + 2 * 4 * D**2 + 2 * 2 * D * INNER
    by_hand = (LAYERS - 1) * layer(LENGTH, D, INNER) + last
    assert count_encoding(DENSE, TINY, V, LENGTH) == pytest.approx(by_hand, rel=0.01)


def test_a_cross_encoder():
    """By a real one; its training reads each pair of a list, twice with R-Drop."""
    settings = sized_settings("tiny", 0.1)
    settings.vocab_size, settings.num_labels = V, 1
    model = AutoModelForSequenceClassification.from_config(settings)
    encoder = CrossEncoder(model, Template((2,), (3,), (3,), None, 0), LENGTH).train()
    rows = full_rows(8, LENGTH, WORDS, seed=1)
    pairs = Pairs(rows.ids_BL, rows.lengths_B, None)

    def step() -> None:
        encoder(pairs).sum().backward()

    forward = count_scoring(TINY, V, 16, LENGTH - 16 + 1)
    assert 8 * 3 * forward == pytest.approx(count_flops(step))
    row = Row(LENGTH - 16 + 1, 16, group=4)
    once, twice = (counted(ListwiseRanking.Config(r_drop=weight), row) for weight in (0.0, 1.0))
    assert once.row == pytest.approx(4 * 3 * forward) and twice.row == pytest.approx(2 * once.row)
    assert once.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("config", [BackboneConfig(name="mini"), BackboneConfig(name="tiny", experts="ffn")])
def test_parameters_of_encoders(config):
    assert encoder_sizes(config, V).parameters == sum(one.numel() for one in backbone(config).parameters())


@pytest.mark.parametrize(("layers", "frozen"), [(3, False), (1, True)])
def test_a_generator_of_queries(layers, frozen):
    config, words = QueryGeneration.Config(decoder_layers=layers, frozen_encoder=frozen), WORDS
    model = build_seq2seq(BackboneConfig(), words, decoder_layers=layers, seed=0)
    objective = QueryGeneration(config, model, words).train()
    batch = finetuning_batch(words, queries=8, group=1, query=12, passage=40)
    own = counted(config, Row(40, 12, 1), on=BackboneConfig())
    assert own.is_whole and own.parameters == sum(parameter.numel() for parameter in objective.parameters())
    assert own.flops(8) == pytest.approx(count_flops(learn(objective, batch)), rel=0.01)
    assert own.targets == 11, "each token of a query but the first"


@pytest.mark.parametrize(("name", "experts"), [("retromae", "none"), ("cotmote", "ffn")])
def test_weights_gradients_and_moments_are_as_many_bytes_as_reckoned(name, experts):
    on = BackboneConfig(name="tiny", experts=experts)
    own, objective, batch = pretraining_step(name, {}, rows=2, on=on)
    optimiser = build_optimiser(objective, TrainConfig(steps=1, batch_size=16, learning_rate=1e-4))
    learn(objective, batch)()
    optimiser.step()
    parameters = list(objective.parameters())
    states = [value for state in optimiser.state.values() for key, value in state.items() if key != "step"]
    memory = reckoned(own, on)
    assert memory.weights == sum(one.nbytes for one in parameters)
    assert memory.gradients == sum(one.grad.nbytes for one in parameters if one.grad is not None)
    assert memory.optimiser == sum(one.nbytes for one in states)


def test_fine_tuning_keeps_all_passages_of_a_query():
    own, objective, batch = finetuning_step("contrastive", DENSE)
    memory, drawn = reckoned(own, rows=8), objective.draw(batch)
    real = kept_bytes(objective, lambda: objective(drawn))
    assert memory.activations + memory.kept_once == pytest.approx(real, rel=0.02) and memory.logits == 0


def test_the_gradient_of_the_output_matrix_is_kept_once_and_logits_exist_by_the_chunk():
    """V x D entries and V of the bias; 3 x 4 bytes of each logit of 0.15 x 64 targets a row, to 2**24 of them."""
    on = BackboneConfig(name="tiny", dropout=0.0)
    own = counted(PRETRAINING["mlm"].Config(encoder_mask_ratio=0.15), Row(LENGTH), on=on)
    matrix = 4 * V * (128 + 1)
    assert own.kept_once == pytest.approx(matrix, rel=0.2) and own.kept_once >= matrix
    few, many = (reckoned(own, on, rows=rows).logits for rows in (4, 10**6))
    assert few == pytest.approx(12 * 4 * 0.15 * LENGTH * V, rel=0.1) and many == 12 * 2**24


def test_a_gpu_keeps_masks_of_dropout_and_no_pairs_of_tokens():
    """A mask is a byte a number, of which 16 fp32 numbers a column are kept: a few percent. On a CPU, attention with
    dropout keeps its probabilities."""

    def activations(dropout: float, kind: str) -> float:
        on = BackboneConfig(name="tiny", dropout=dropout)
        return reckoned(counted(PRETRAINING["mlm"].Config(), Row(256), on=on, kind=kind), on, kind=kind).activations

    without = activations(0.0, "cuda")
    assert without == pytest.approx(activations(0.0, "cpu"), rel=0.01)
    assert without < activations(0.1, "cuda") < 1.06 * without < activations(0.1, "cpu")


N, Q = 48, len(SPLITS["dev"])
D, WIDE = 128, 4096
SPLADE = {"dense": None, "lexical": "splade"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    return short(RECIPES["retromae"](), write_collection(tmp_path_factory.mktemp("words") / "tiny"))


@pytest.fixture(scope="module")
def storage(recipe, tmp_path_factory) -> Place:
    """Corpus and tokens are made, so that their numbers are known exactly."""
    place = Place(str(tmp_path_factory.mktemp("store")))
    Runner(place, LOCAL).run(plan(recipe).tokens)
    return place


@pytest.fixture(scope="module")
def tokens(recipe, storage) -> dict[str, Any]:
    return load(plan(recipe).tokens.place(storage)).result


def of(step: Step, storage: Place, workers: int = 1) -> Charge:
    return Charges(storage, "cpu", workers).of(step)


def search_of(recipe: Recipe, representation: dict[str, Any], **evaluation: Any) -> Step:
    changes = {f"representation.{name}": value for name, value in representation.items()}
    changes |= {f"evaluation.{name}": value for name, value in evaluation.items()}
    changed = override(recipe, changes)
    return plan(changed).evaluation(changed.evaluation).inputs["ranked"]


def encoded(recipe: Recipe, side: str, **representation: Any) -> Step:
    return search_of(recipe, representation).inputs[side]


def test_a_dense_search_is_a_product_of_all_pairs(recipe, storage):
    charge = of(search_of(recipe, {}), storage)
    assert charge.flops == 2 * Q * N * D and charge.core_seconds == 0
    assert charge.bytes == RANKED_BYTES * Q * N, "no more rows than there are passages, though the depth is 101"
    assert of(search_of(recipe, {}, depth=9), storage).bytes == RANKED_BYTES * Q * 10
    assert of(search_of(recipe, {"width": 16}), storage).flops == 2 * Q * N * 16


def test_an_index_holds_every_vector_and_only_gpus_have_a_copy(recipe, storage):
    search = search_of(recipe, {"width": 16}, index="IVF16,Flat", nprobe=2)
    index, cpu, gpu = of(search.inputs["index"], storage), of(search, storage), Charges(storage, "cuda", 1).of(search)
    assert index.bytes == (4 * 16 + 8) * N and index.host == index.bytes + 4 * 16 * N, "and what it learns from"
    drawn = of(search.inputs["exact"], storage)
    assert drawn.flops == 2 * min(Q, 256) * N * 16 and drawn.index == 0
    assert cpu.host == gpu.host == gpu.index == (4 * 16 + 8) * N and cpu.index == 0, "in memory each has an id"


LIMITS = {"passage_terms": 64, "query_terms": 7}


@pytest.mark.parametrize(("terms", "passage_words", "query_words"), [({}, 200, 30), (LIMITS, 64, 7)])
def test_a_lexical_search_adds_up_the_postings_that_are_met(recipe, storage, tokens, terms, passage_words, query_words):
    """Of V lists each query reads as many as it has words; a list is as long as passages have words, over V."""
    charge = of(search_of(recipe, {**SPLADE, **terms}), storage)
    postings = Q * query_words * (N * passage_words / tokens["vocabulary"])
    assert charge.flops == 0 and charge.core_seconds == pytest.approx(postings / 1e8)
    fewer = of(search_of(recipe, {**SPLADE, **terms}, passage_terms=16, query_terms=2), storage)
    assert fewer.core_seconds == pytest.approx(postings / 1e8 * 16 / passage_words * 2 / query_words)


def test_token_vectors_are_stored_in_8_bits_and_scored_as_far_as_the_pool_reaches(recipe, storage, tokens):
    late = {"dense": None, "tokens": 32}
    mean = tokens["tokens"] / tokens["passages"]
    assert of(encoded(recipe, "passages", **late), storage).bytes == pytest.approx(N * ((32 + 4) * mean + 4))
    query = of(encoded(recipe, "queries", **late), storage).tokens / Q
    for pool, scored in ((20, 21), (1000, N)):
        pooled = of(search_of(recipe, late, pool=pool, depth=10), storage)
        assert pooled.core_seconds == pytest.approx(Q * scored * query * mean * 32 / CODES_PER_SECOND)
        assert pooled.bytes == RANKED_BYTES * Q * 11


def test_an_encoding_reads_every_text_of_its_side_once(recipe, storage, tokens):
    passages, queries = (of(encoded(recipe, side), storage) for side in ("passages", "queries"))
    assert passages.tokens == pytest.approx(tokens["tokens"])
    assert passages.flops > queries.flops > 0
    cut = of(search_of(recipe, {}, passage_length=8).inputs["passages"], storage)
    assert cut.tokens == N * 8 and cut.flops < passages.flops
    assert of(encoded(override(recipe, {"tokens.query_length": 5}), "queries"), storage).tokens == Q * 5


def test_a_training_pays_for_the_steps_that_are_left(recipe, storage, tokens):
    """The second rung goes on from the first."""
    longer = override(recipe, {"pretrain.steps": 40, "pretrain.batch_size": 8})
    first, whole = (steps.pretrained for steps in rungs(longer, (0.25, 1.0), Survey()))
    mean = tokens["tokens"] / N
    for step, left in ((first, 10), (whole, 30)):
        charge = of(step, storage)
        assert charge.tokens == pytest.approx(left * 8 * mean)
        assert charge.training.steps == left and charge.flops == pytest.approx(left * charge.training.counted.flops(8))
    assert of(plan(longer).pretrained, storage).tokens == pytest.approx(40 * 8 * mean)


def test_a_pre_trainings_state_stays_and_a_fine_tunings_goes(recipe, storage):
    """A model is 4 bytes a parameter, AdamW's state to go on from 12 more, a trace 60 bytes a step and 4 a row."""
    steps = plan(recipe)
    before, after = of(steps.pretrained, storage), of(steps.stages[0], storage)
    assert before.bytes == 16 * before.training.counted.parameters + 3 * (60 + 4 * 8)
    assert after.bytes == 4 * after.training.counted.parameters + 2 * (60 + 4 * 4)
    assert after.peak_bytes > 12 * after.training.counted.parameters


def test_scored_pairs_are_the_positive_and_every_listed_candidate(recipe, storage, tokens):
    """Query, passage and the three specials of a pair; a list is as long as it was mined, or as it is cut."""
    whole = short(PROTOCOLS["sigir23_32neg_distil"]().on(recipe, "demo"), recipe.corpus.name)
    scores = [step for step in plan(whole).evaluation(whole.evaluation).upstream() if step.name == "score"]
    assert scores
    charges = Charges(storage, "cpu", 1)
    for step in scores:
        lists = [source for name, source in step.inputs.items() if name.startswith(("negatives", "ranked"))]
        listed = sum(getattr(source.config, "per_query", getattr(source.config, "depth", 0)) for source in lists)
        charge, pairs = charges.of(step), len(SPLITS["train"]) * (1 + listed)
        pair = charge.tokens / pairs
        assert charge.bytes == 30 * pairs and charge.fp32, "a teacher scores in single precision"
        each = count_scoring(*charges.encoder(step.inputs["teacher"]), 14, round(pair) - 14 + 1)
        assert charge.flops == pytest.approx(pairs * each)
        assert 3 < pair <= tokens["tokens"] / N + 24
        narrow = step.__class__(step.name, step.config.model_copy(update={"passage_length": 8}), step.inputs)
        assert charges.of(narrow).tokens == pairs * (14 + 8 - 1), "a question has 14 tokens; both share one [CLS]"


class Widened(Objective):
    """All tokens' states through one wide matrix."""

    class Config(ObjectiveConfig):
        name: Literal["widened"] = "widened"
        times: int = 1
        looks: bool = False

    parts: ClassVar[tuple[str, ...]] = ("widened",)

    def __init__(self, config: Config, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(config, backbone, vocabulary)
        self.wide = nn.Linear(D, WIDE, bias=False)

    def draw(self, batch: Batch) -> TokenRows:
        return batch.texts["passage"]

    def counts(self, drawn: TokenRows) -> dict[str, Tensor]:
        return {"widened": drawn.lengths_B.sum()}

    def forward(self, drawn: TokenRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.ids_BL, drawn.lengths_B)
        total = sum((self.wide(hidden_BLD).sum() for _ in range(self.config.times)), hidden_BLD.new_zeros(()))
        if self.config.looks and float(total.detach()) > 0:
            total = total + self.wide(hidden_BLD).sum()
        return Loss({"widened": Part(total, drawn.lengths_B.sum())})


def test_a_new_objective_costs_what_it_does(recipe, storage, monkeypatch):
    """Once more through its matrix is 2 x width x columns a token, three times in training. Mean lengths are counted as
    whole tokens, 12 for 12.4 here. One that looks at numbers is priced as its encoder, and the report says so."""
    table = objectives.PRETRAINING
    monkeypatch.setattr(objectives, "PRETRAINING", Registry(table.kind, {**table, "widened": Widened}))
    fields = ({}, {"times": 3}, {"looks": True})
    steps = [plan(override(recipe, {"objective": {"name": "widened", **own}})).pretrained for own in fields]
    once, thrice, looking = (of(step, storage).flops for step in steps)
    assert thrice - once == pytest.approx(2 * 3 * 2 * D * WIDE * of(steps[0], storage).tokens, rel=0.05)
    assert 0 < looking < once
    said = [as_text(estimate([step], storage, shape_named("1xH100"))) for step in steps]
    assert ["widened: its loss needs numbers" in text for text in said] == [False, False, True]
