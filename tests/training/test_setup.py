"""What a training run reads, by what its objective says it reads."""

from dataclasses import fields, replace

import pytest

from midmask.artifact import Artifact, Place
from midmask.backend.worker_group import absolute
from midmask.encoders.backbone import BackboneConfig
from midmask.experiment.steps import PretrainConfig, pretrain_setup
from midmask.objectives import PRETRAINING
from midmask.training.contexts import PseudoQueryExamples, SpanExamples
from midmask.training.examples import PassageExamples
from midmask.training.optimiser import TrainConfig
from midmask.training.packing import PackedExamples
from midmask.training.setup import PretrainSetup

NAMES = ("tokens", "corpus", "spans", "pseudo_queries", "weights")
PLACES = {name: Place(f"store/{name}") for name in NAMES}


def setup_of(objective: str, *, without: str = "", **settings: object) -> PretrainSetup:
    """The setup of a pre-training whose inputs are all there, under fingerprints that are their names."""
    config = PretrainConfig(
        backbone=BackboneConfig(),
        objective=PRETRAINING[objective].Config.model_validate({"name": objective, **settings}),
        train=TrainConfig(steps=1, batch_size=1, learning_rate=1.0),
    )
    record = {"config": {"max_length": 48, "span_length": 40}}
    there = {name: place for name, place in PLACES.items() if name != without}
    return pretrain_setup(
        config, {name: Artifact(place, {"fingerprint": name, **record}) for name, place in there.items()}
    )


def test_rows_are_what_the_objective_reads():
    tokens = PLACES["tokens"]
    assert setup_of("mlm").rows == PassageExamples(tokens, "tokens")
    weighted = PassageExamples(tokens, "tokens", PLACES["weights"])
    assert setup_of("mlm", encoder_mask="weighted").rows == weighted, "rows keep the tokens' order"
    assert setup_of("mlm", packing=True).rows == PackedExamples(tokens, "tokens", 48)
    assert setup_of("cotmae").rows == SpanExamples(PLACES["spans"], "spans", "mixed")
    assert setup_of("cocondenser").rows == SpanExamples(PLACES["spans"], "spans", "any")
    assert setup_of("cotmae_qc").rows == PseudoQueryExamples(tokens, PLACES["pseudo_queries"], "pseudo_queries")
    assert (setup_of("mlm").longest, setup_of("cotmae").longest) == (48, 40)


def test_where_rows_meet_batches_are_not_grouped_by_length():
    examples = setup_of("simcse").rows
    assert isinstance(examples, PassageExamples) and not examples.by_length


def test_a_place_that_is_read_must_be_given():
    for objective, name in (("cotmae", "spans"), ("cotmae_qc", "pseudo_queries")):
        with pytest.raises(ValueError, match=f"the objective reads {name}"):
            setup_of(objective, without=name)


def test_every_place_is_absolute_for_workers():
    setup = absolute(setup_of("cotmae_qc", encoder_mask="weighted"))
    places = [getattr(holder, field.name) for holder in (setup, setup.rows) for field in fields(holder)]
    named = {place.uri for place in places if isinstance(place, Place)}
    read = {"tokens", "corpus", "pseudo_queries", "weights"}
    assert {uri.rpartition("/")[2] for uri in named} == read and all(uri.startswith("/") for uri in named)
    assert absolute(replace(setup, tokens=Place("s3://b/t"))).tokens == Place("s3://b/t")
