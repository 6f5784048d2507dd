"""The steps behind a recipe's trainings: its collections, its stages of fine-tuning.

The collections of the middle training, where they are not the corpus of fine-tuning and evaluation. All with the
corpus's tokenizer, so that systems that are compared have one vocabulary:

    several collections    prepare, prepare, … ─► join ─► tokenise
    one collection         prepare ─► tokenise

The stages. A teacher that is trained here depends on the corpus alone, so that all systems that are compared have the
same one. With a teacher margin, the teacher looks at all candidates before any is chosen: rankings ─► score ─► mine.

    rankings ─► mine ──► score ─┐
                 └──────────────┴─► finetune ─► the rankings of the next stage
    BM25's ranking ─► mine ─► teach ─► score
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from midmask.corpora.assemble import JoinConfig
from midmask.corpora.config import CorpusConfig
from midmask.corpora.reader import corpus_identity
from midmask.encoders.backbone import BackboneConfig
from midmask.errors import UserError
from midmask.experiment.graph import Step
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted, bm25_ranking, folder_content, mining_step, ranking, tokens_like
from midmask.experiment.stage import NegativeSource, StageConfig
from midmask.experiment.steps import FinetuneConfig
from midmask.mining.listed import ReadNegativesConfig, negatives_content
from midmask.mining.mine import DrawQueriesConfig, MineConfig
from midmask.teacher.score import ReadScoresConfig, scores_content
from midmask.teacher.teach import TeacherConfig

T = TypeVar("T")


class Survey:
    """Remembers what collections, folders and files hold, by fingerprint. Plain data, so it travels to any node."""

    def __init__(self) -> None:
        self._cache: dict[str, Mapping[str, Any]] = {}

    def find(self, read: Callable[[T], Mapping[str, Any]], of: T) -> Mapping[str, Any]:
        """What `read` finds of a config or a name; it is called once for each.

        Raises:
            UserError: as `read` does, each time.
        """
        key = f"{read.__module__}.{read.__qualname__} {of!r}"
        if key not in self._cache:
            self._cache[key] = read(of)
        return self._cache[key]

    def collection(self, config: CorpusConfig) -> Step:
        """A collection as a step. Raises UserError if it is not there."""
        return Step("prepare", config, content=self.find(corpus_identity, config))

    def folder(self, name: str | None) -> Mapping[str, Any]:
        """The files of a named model, as `folder_content`."""
        return self.find(folder_content, name)


def pretraining_tokens(recipe: Recipe, tokens: Step, survey: Survey) -> Step:
    """The tokens that the middle training reads, with the vocabulary of the corpus's `tokens`: these, unless
    collections of its own are named; they are read as the corpus is (`max_passages`, `max_characters`, …).

    Raises:
        UserError: for a collection or folder that is not there.
    """
    if recipe.objective is None or not recipe.pretrain_on:
        return tokens
    prepared = [survey.collection(recipe.corpus.model_copy(update={"name": name})) for name in recipe.pretrain_on]
    collection = prepared[0] if len(prepared) == 1 else _join_corpora(prepared)
    is_corpus = collection.fingerprint == tokens.inputs["corpus"].fingerprint
    return tokens if is_corpus else tokens_like(tokens, recipe.tokens, collection)


def _join_corpora(prepared: list[Step]) -> Step:
    names = tuple(step.config.short_name for step in prepared)  # type: ignore[attr-defined]
    return Step("join", JoinConfig(names=names), {f"corpus{number}": step for number, step in enumerate(prepared)})


@dataclass(frozen=True)
class Stages:
    """The stages of a recipe, laid out one after the other."""

    recipe: Recipe
    tokens: Step
    pretrained: Step | None  # the encoder of the middle training; none: the recipe's backbone as it is
    survey: Survey

    @property
    def corpus(self) -> Step:
        return self.tokens.inputs["corpus"]

    def steps(self) -> tuple[Step, ...]:
        """The fine-tuning steps, in order.

        Raises:
            UserError: for a file of negatives or scores, or a teacher, that is not there.
        """
        done: list[Step] = []
        for stage in self.recipe.stages:
            done.append(self._finetune(stage, done))
        return tuple(done)

    def _finetune(self, stage: StageConfig, before: list[Step]) -> Step:
        start = before[-1] if stage.starts_from == "previous" else self.pretrained
        inputs = {"tokens": self.tokens, "corpus": self.corpus, **self._training_inputs(stage, before)}
        if start is not None:
            inputs["start"] = start
        backbone, tokens = self.recipe.backbone, self.recipe.tokens
        config = FinetuneConfig(
            backbone=backbone if start is None else backbone.model_copy(update={"name": "start"}),
            representation=self.recipe.representation,
            loss=stage.loss,
            train=stage.train,
            per_query=stage.per_query,
            missing_positive_score=stage.missing_positive_score,
            query_length=tokens.query_length,
            passage_length=tokens.max_length,
        )
        return Step(
            "finetune",
            config,
            inputs,
            content=self.survey.folder(backbone.name) if start is None else {},
            path=f"stages.{len(before)}.train",
        )

    def _training_inputs(self, stage: StageConfig, before: list[Step]) -> dict[str, Step]:
        """Negatives, scores and the subset of queries, as far as the stage has them. Where negatives are mined for some
        queries alone, the others are not trained on: random passages would stand in for their negatives.
        """
        inputs: dict[str, Step] = {}
        if stage.sources:
            lists = self._lists(stage.sources, stage.mine, before)
            if stage.teacher is not None and stage.mine.filters.teacher_margin is not None:
                inputs["scores"] = self._score(stage, lists, before)
                inputs["negatives"] = mining_step({**lists, "scores": inputs["scores"]}, self.corpus, stage.mine)
            else:
                inputs["negatives"] = mining_step(lists, self.corpus, stage.mine)
                if stage.teacher is not None:
                    inputs["scores"] = self._score(stage, {"negatives": inputs["negatives"]}, before)
            if stage.mine.max_queries is not None:
                inputs["queries"] = inputs["negatives"]
        if stage.queries is not None:
            drawn = DrawQueriesConfig(split=stage.mine.split, count=stage.queries, seed=stage.mine.seed)
            inputs["queries"] = Step("draw_queries", drawn, {"corpus": self.corpus})
        return inputs

    def _lists(self, sources: tuple[NegativeSource, ...], config: MineConfig, before: list[Step]) -> dict[str, Step]:
        """The candidates of each source, named `ranked0`, `ranked1`, … in the order of the sources."""
        return {f"ranked{number}": self._plan_source(source, config, before) for number, source in enumerate(sources)}

    def _plan_source(self, source: NegativeSource, config: MineConfig, before: list[Step]) -> Step:
        if source.kind == "file":
            file = ReadNegativesConfig(file=source.file)
            content = self.survey.find(negatives_content, file)
            return Step("read_negatives", file, {"corpus": self.corpus}, content=content)
        if source.kind == "bm25":
            return bm25_ranking(self.corpus, config, titles=self.recipe.tokens.titles, judged="relevant")
        ranker = before[-1 if source.stage is None else source.stage]
        return ranking(self.tokens, ranker, config, judged="relevant")

    def _score(self, stage: StageConfig, lists: Mapping[str, Step], before: list[Step]) -> Step:
        """The scores of listed passages and of the positives by the stage's teacher, or those of a file."""
        if stage.teacher is None:
            raise ValueError("a stage without a teacher has no scores")
        if stage.teacher.scores is not None:
            config = ReadScoresConfig(file=stage.teacher.scores)
            content = self.survey.find(scores_content, stage.teacher.scores)
            return Step("read_scores", config, {"corpus": self.corpus}, content=content)
        scoring = stage.teacher.scoring(stage.mine.split, self.recipe.tokens)
        teacher = self._teacher(stage.teacher, stage.teacher_sources, before)
        return Step("score", scoring, {"teacher": teacher, "corpus": self.corpus, **lists})

    def _teacher(self, config: TeacherConfig, sources: tuple[NegativeSource, ...], before: list[Step]) -> Step:
        """A folder from elsewhere, or a cross-encoder that is trained here."""
        if config.folder is not None:
            if not (content := self.survey.folder(config.folder)):
                raise UserError(f"teacher.folder = {config.folder}: there is no model folder of that name")
            return adopted(config.folder, content)
        student = self.recipe.backbone
        backbone = config.backbone or BackboneConfig(name=student.name, dropout=student.dropout)
        read = config.read_from(self.recipe.tokens)
        tokenizer = self.survey.folder(self.recipe.tokens.tokenizer)
        tokens = Step("tokenise", read, {"corpus": self.corpus}, content=tokenizer)
        negatives = mining_step(self._lists(sources, config.mine, before), self.corpus, config.mine)
        inputs = {"tokens": tokens, "corpus": self.corpus, "negatives": negatives}
        taught = config.teaching(backbone, query_length=read.query_length)
        content = self.survey.folder(backbone.name)
        return Step("teach", taught, inputs, content=content, path=f"stages.{len(before)}.teacher.train")
