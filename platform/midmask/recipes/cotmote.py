"""CoT-MoTE (Ma et al. 2023) and its controls: the same training with fewer, more, or the wrong experts."""

from midmask.encoders.backbone import BackboneConfig
from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.cotmote import CoTMoTE
from midmask.recipes.none import none
from midmask.recipes.protocols.cotmote import cotmote as protocol


def cotmote() -> Recipe:
    """Feed-forward experts for queries and passages, dense and sparse vectors; fine-tuned with both, in two stages."""
    base = none()
    backbone = BackboneConfig(name=base.backbone.name, dropout=base.backbone.dropout, experts="ffn")
    changes = {"name": "cotmote", "objective": CoTMoTE.Config(), "backbone": backbone}
    return protocol().on(base.model_copy(update=changes), "demo")


def cotmote_siamese() -> Recipe:
    """One encoder for both sides ("Siamese")."""
    base = cotmote()
    backbone = base.backbone.model_copy(update={"experts": "none"})
    return base.model_copy(update={"name": "cotmote_siamese", "backbone": backbone})


def cotmote_separate() -> Recipe:
    """Two whole encoders ("full sep")."""
    base = cotmote()
    backbone = base.backbone.model_copy(update={"experts": "all"})
    return base.model_copy(update={"name": "cotmote_separate", "backbone": backbone})


def cotmote_switched() -> Recipe:
    """Pre-trained with each side in the other's expert, fine-tuned with each in its own ("switch")."""
    return cotmote().model_copy(update={"name": "cotmote_switched", "objective": CoTMoTE.Config(switched=True)})
