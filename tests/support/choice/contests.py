"""Contests between systems on a tiny collection, in this process."""

from pathlib import Path

from midmask.artifact import Place
from midmask.choice.budget import Limits
from midmask.choice.contenders import contest
from midmask.choice.contest_terms import Conditions
from midmask.choice.samples import Sample
from midmask.choice.workshop import LocalWorkshop
from midmask.corpora import CorpusConfig
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.experiment.survey import Survey
from tests.support.benchmark.tiny import write_collection
from tests.support.choice.documents import SETTINGS

CHANGES = {path: value for path, value in SETTINGS.items() if "steps" not in path}


def conditions_in(folder: Path) -> Conditions:
    """Of a collection, and of another one that is its sample."""
    whole, part = write_collection(folder / "whole"), write_collection(folder / "part")
    return Conditions(
        make=lambda size, splits: contest(whole, ["none", "mlm"], size, splits, CHANGES, 0),
        seed=0,
        limits=Limits(48, 24),
        representations=("dense",),
        taught=False,
        survey=Survey(),
        sample=lambda split: Sample(CorpusConfig(name=part, splits="official"), 48),
    )


def workshop(folder: Path) -> LocalWorkshop:
    return LocalWorkshop(Runner(Place(str(folder / "store")), LOCAL, Silent()))
