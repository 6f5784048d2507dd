"""What a generator of queries costs, held against the real model on real numbers, and against a formula."""

import pytest

from midmask.artifact import Place
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.representation import Representation
from midmask.encoders.seq2seq import build_seq2seq
from midmask.estimate.charges import Charges
from midmask.estimate.counting import Row, count_training
from midmask.experiment.plan import Step, plan
from midmask.experiment.steps import TrainingConfig
from midmask.identity import override
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.sample import finetuning_batch, sample_vocabulary
from midmask.queries.train import GeneratorConfig
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import write_collection
from tests.support.estimate.counted import count_flops, learn
from tests.support.queries.labelled import generating

V, D = 1024, 128


@pytest.mark.parametrize(("layers", "frozen"), [(1, False), (3, False), (1, True)])
def test_a_step_is_counted_without_its_weights(layers: int, frozen: bool) -> None:
    config, words = QueryGeneration.Config(decoder_layers=layers, frozen_encoder=frozen), sample_vocabulary(V)
    model = build_seq2seq(BackboneConfig(), words, decoder_layers=layers, seed=0)
    objective = QueryGeneration(config, model, words).train()
    batch = finetuning_batch(words, queries=8, group=1, query=12, passage=40)
    own = count_training(config, BackboneConfig(), V, Representation(), Row(40, 12, 1), kind="cpu", bf16=False)
    assert own.is_whole and own.parameters == sum(parameter.numel() for parameter in objective.parameters())
    assert own.flops(8) == pytest.approx(count_flops(learn(objective, batch)), rel=0.01)
    assert own.targets == 11, "each token of a query but the first"


def test_a_layer_of_the_decoder_costs_what_its_matrices_do() -> None:
    """Forward and backward: self-attention, attention to 40 tokens, feed-forward, for 11 tokens of a query."""
    one, two = (
        count_training(
            QueryGeneration.Config(decoder_layers=layers),
            BackboneConfig(),
            V,
            Representation(),
            Row(40, 12, 1),
            kind="cpu",
            bf16=False,
        )
        for layers in (1, 2)
    )
    own, seen = 11, 40
    matrices = 2 * D * D * (own * (4 + 2 + 8) + seen * 2)
    attention = 4 * D * own * (own + seen)
    assert two.row - one.row == pytest.approx(3 * matrices + 3 * attention, rel=0.03)


def test_the_step_is_a_training_to_all_that_counts(tmp_path_factory: pytest.TempPathFactory) -> None:
    corpus = write_collection(tmp_path_factory.mktemp("tiny") / "tiny")
    steps = plan(override(RECIPES["none"](), {"corpus.name": corpus, "tokens.vocabulary_size": 300}))
    config = generating(steps=7)
    step = Step("generator", config, {"corpus": steps.corpus, "tokens": steps.tokens})
    assert isinstance(config, TrainingConfig) and step.optimiser_steps == 7
    charge = Charges(Place(str(tmp_path_factory.mktemp("store"))), "cpu", 1).of(step)
    assert charge.training is not None and charge.training.rows == 7 * 8
    assert charge.flops > 0 and charge.memory is not None and charge.tokens > 0
    longer = GeneratorConfig(**{**config.model_dump(), "train": {**config.train.model_dump(), "steps": 14}})
    assert Step("generator", longer, step.inputs).fingerprint != step.fingerprint
