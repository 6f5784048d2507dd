"""`midmask.train`: a recipe on a corpus, in this process; the trained model and what it can do."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midmask.api.calls import as_changes, open_store, recipe_named, runner_in
from midmask.api.corpus import Corpus
from midmask.core.config import flatten, override
from midmask.corpora.reader import judged_splits
from midmask.encoders.model_settings import read_facts
from midmask.errors import UserError
from midmask.experiment.changes import apply_changes, refuse_idle
from midmask.experiment.evaluations import refuse_missing_splits
from midmask.experiment.graph import Step
from midmask.experiment.plan import Plan, plan
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import passage_encoding_step
from midmask.retrieve.searcher import Hit, Searcher
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.store.tables import read_table

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class Run:
    """A trained recipe. `midmask.train` makes it; the same call gives it again without computing anything.

    recipe: the whole configuration; its name is what tables call the run. plan: its steps. step: the one that made the
    model. runner: computes what a search or an evaluation needs.
    """

    def __init__(self, recipe: Recipe, plan: Plan, step: Step, artifact: Artifact, runner: Runner) -> None:
        self.plan = plan
        self.step = step
        self.runner = runner
        self.recipe = recipe
        self._artifact = artifact

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as dotted path -> value."""
        return flatten(self.recipe)

    @cached_property
    def model(self) -> str:
        """The model's folder, as transformers and sentence-transformers take it. Copy it to keep it: the store may be
        cleaned.
        """
        return str((self._artifact.place / "model").local())

    def encoder(self, device: str | None = None) -> "SentenceTransformer":
        """The model in sentence-transformers: a SentenceTransformer; a SparseEncoder if all its vectors are lexical; a
        MultiVectorEncoder if they are those of tokens.

        Args:
            device: as sentence-transformers takes it; none: its choice.

        Raises:
            UserError: if sentence-transformers is not installed, or has no class for such vectors.
        """
        try:
            import sentence_transformers
        except ImportError:
            raise UserError(
                "Run.encoder() needs sentence-transformers: pip install 'sentence-transformers>=6,<7'. Run.search() "
                "and the folder Run.model need no more than midmask."
            ) from None
        if not Path(self.model, "modules.json").is_file():
            raise UserError(f"{self.model}: sentence-transformers has no class for such vectors; use Run.search()")
        kinds = {"dense": "SentenceTransformer", "lexical": "SparseEncoder", "late": "MultiVectorEncoder"}
        kind = getattr(sentence_transformers, kinds[read_facts(Path(self.model)).representation.views[0]])
        return kind(self.model, device=device, local_files_only=True)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best `k` documents of the run's corpus, the best first: doc_id, score, title, text. The first call
        encodes the corpus, once for the store; an evaluation uses the same vectors.

        Raises:
            UserError: if k is below 1.
        """
        return self._searcher.search([query], k)[0]

    @cached_property
    def _searcher(self) -> Searcher:
        evaluation = self.recipe.evaluation
        passages = passage_encoding_step(self.plan.tokens, self.step, evaluation)
        inputs = {name: self.runner.compute(passages.inputs[name]) for name in ("model", "tokens")}
        corpus = self.runner.compute(self.plan.corpus)
        encoded = self.runner.compute(passages)
        return Searcher(corpus=corpus, passages=encoded, query_length=evaluation.query_length, **inputs)

    @property
    def losses(self) -> dict[str, list[float]]:
        """The loss after each optimiser step of each training, in order: `pretrain`, then `finetune.0`, …"""
        return {name: read_table(place / "trace.parquet")["loss"].to_pylist() for name, place in self._trained.items()}

    @property
    def stages(self) -> dict[str, str]:
        """The model's folder after each training, by the names of `losses`, each with the heads that the next training
        drops (`heads.safetensors`). Copy what is to be kept: the store may be cleaned.
        """
        return {name: str((place / "model").local()) for name, place in self._trained.items()}

    @property
    def _trained(self) -> dict[str, Place]:
        """The artifacts of the run's finished trainings."""
        trainings, storage = self.plan.trainings, self.runner.storage
        steps = trainings if self.step in self.plan.stages else {"pretrain": trainings["pretrain"]}
        return {name: load(step.place(storage)).place for name, step in steps.items() if step.is_finished(storage)}

    def __repr__(self) -> str:
        return f"Run({self.recipe.name} on {self.recipe.corpus.short_name}: {self.model})"


def train(
    recipe: str,
    corpus: Corpus,
    *,
    protocol: str | None = None,
    backbone: str | Path | None = None,
    seed: int | None = None,
    settings: Mapping[str, object] | None = None,
    storage: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Trains a recipe's encoder: its middle training on all documents of the corpus, then, if the corpus has queries
    and judgements to train on, its fine-tuning. What is in the store already is not computed again.

    Args:
        recipe: a name of `midmask.list_recipes()`, such as "retromae"; "none" has no middle training.
        protocol: fine-tuning in place of the recipe's own, a name of `midmask.list_protocols()`.
        backbone: Hugging Face folder or cached hub id to start from; none: a tiny encoder with fresh weights.
        seed: of everything random; none: the recipe's.
        settings: dotted path -> value, such as {"pretrain.steps": 2000}, which win over the arguments;
            `midmask.settings(recipe)` lists the paths, which are those of the jobs' --set.
        storage: folder or URI of the store; none: MIDMASK_STORAGE, else `midmask-store` in the working directory.
        progress: prints to standard error what is computed.

    Raises:
        UserError: for an unknown recipe, protocol or setting, with the nearest name; for an impossible value; or if the
            recipe has nothing to train on in this corpus.
    """
    if not isinstance(corpus, Corpus):
        raise UserError(
            f"corpus: a {type(corpus).__name__}; make a corpus of it, with midmask.Corpus.from_texts(texts) or "
            "midmask.Corpus.from_folder(path)"
        )
    place, made = open_store(storage), recipe_named(recipe, protocol)
    changes = as_changes(settings)
    refuse_idle(made, changes)
    if backbone is not None:
        changes = {"backbone.name": str(backbone), **changes}
    if seed is not None:
        changes = {**made.all_seeds(seed), **changes}
    made = apply_changes(override(made, {"corpus": corpus.in_store(place).model_dump()}), changes)
    made.check()
    planned = plan(made)
    model = _model(made, planned, protocol)
    refuse_missing_splits([model])
    runner = runner_in(place, progress=progress)
    return Run(made, planned, model, runner.compute(model), runner)


def _model(recipe: Recipe, planned: Plan, protocol: str | None) -> Step:
    """The step with the run's model: the last stage, or the middle training if there are no queries to train on.

    Raises:
        UserError: if there is nothing to train.
    """
    if "train" in judged_splits(recipe.corpus):
        return planned.stages[-1]
    needs = "Corpus.from_texts(texts, queries=…, relevant=…) gives it some"
    if protocol is not None:
        raise UserError(f"protocol = {protocol!r}: {recipe.corpus.short_name} has no queries to fine-tune on; {needs}")
    if planned.pretrained is None:
        raise UserError(
            f"recipe {recipe.name!r} has no middle training, and {recipe.corpus.short_name} has no queries to fine-tune"
            f" on; {needs}, or choose a recipe such as 'retromae'"
        )
    return planned.untuned
