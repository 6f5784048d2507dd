"""A fine-tuning protocol as a config, put on a recipe at the paper's sizes or at a demo's."""

from typing import Literal

from pydantic import Field

from midmask.core.config import Config
from midmask.encoders.representation import Representation
from midmask.experiment.schema import Recipe
from midmask.experiment.stage import StageConfig
from midmask.mining.mine import MineConfig
from midmask.teacher.teach import TeacherConfig
from midmask.training.optimiser import TrainConfig

Scale = Literal["demo", "published"]

DEMO = TrainConfig(steps=150, batch_size=32, learning_rate=1e-3, warmup=0.1, decay=0.9, checkpoint_every=50)
"""A stage of a tiny model in a minute or two on two CPU cores."""

DEMO_TEACHER = DEMO.model_copy(update={"steps": 600, "learning_rate": 5e-4})
"""A teacher at that size: in fewer steps, or at the stages' rate, it does not yet rank better than chance, and what it
teaches is then that all passages are alike (measured on SQuAD, docs/results/protocols.md)."""

DEMO_NEGATIVES = 7
"""Hard negatives a query at most, at that size."""

DEMO_QUERIES = 4096
"""Queries that negatives are mined for, at that size: about as many as a stage sees."""

DEMO_TEMPERATURES = {"logits": 100.0, "splade": 30.0, None: None}
"""Divisor of scores by lexical view, at that size: hundreds of words add up to hundreds, and a rate that teaches a tiny
encoder within 150 steps then drives it into giving all texts one vector. none: as published."""


class Protocol(Config):
    """Fine-tuning as one paper does it, with its numbers."""

    name: str = Field(description="as in the table of protocols")
    representation: Representation = Field(default_factory=Representation, description="what is scored")
    stages: tuple[StageConfig, ...] = Field(min_length=1, description="in order")
    titles: bool = Field(False, description="whether a passage is 'title text'")
    query_length: int = Field(32, ge=4, description="tokens of a query")
    passage_length: int = Field(128, ge=8, description="tokens of a passage")

    def on(self, recipe: Recipe, scale: Scale) -> Recipe:
        """The recipe with this fine-tuning in place of its own.

        Args:
            scale: `published` takes batches, rates, steps and lengths from the paper, steps as epochs over MS MARCO;
                `demo` keeps the recipe's lengths and makes every stage as small as a demo.
        """
        tokens: dict[str, object] = {"titles": self.titles}
        stages = self.stages
        if scale == "published":
            tokens |= {"query_length": self.query_length, "max_length": self.passage_length}
        else:
            temperature = DEMO_TEMPERATURES[self.representation.lexical]
            stages = tuple(demo_sized(stage, temperature) for stage in self.stages)
        return recipe.model_copy(
            update={
                "protocol": self.name,
                "representation": self.representation,
                "stages": stages,
                "tokens": recipe.tokens.model_copy(update=tokens),
            }
        )


def demo_sized(stage: StageConfig, temperature: float | None = None) -> StageConfig:
    """The stage with the same losses, sources and order, but few short steps and few negatives a query.

    Args:
        temperature: of the loss; none: as published.
    """
    changes: dict[str, object] = {
        "loss": stage.loss if temperature is None else stage.loss.model_copy(update={"temperature": temperature}),
        "train": DEMO.model_copy(update={"seed": stage.train.seed}),
        "per_query": min(stage.per_query, DEMO_NEGATIVES),
        "mine": _demo_mine(stage.mine, DEMO_QUERIES if stage.sources else None),
    }
    if stage.teacher is not None:
        fields = {"negatives": stage.teacher.negatives, "mine": _demo_mine(stage.teacher.mine, DEMO_QUERIES)}
        changes["teacher"] = TeacherConfig(train=DEMO_TEACHER, per_query=DEMO_NEGATIVES, jsonl=True, **fields)
    return stage.model_copy(update=changes)


def _demo_mine(config: MineConfig, queries: int | None) -> MineConfig:
    sizes = {"depth": min(config.depth, 100), "per_query": min(config.per_query, 15), "max_queries": queries}
    return config.model_copy(update=sizes)
