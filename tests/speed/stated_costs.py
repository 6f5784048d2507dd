"""Predicted hours against the hours that papers and their authors state, with the device table's one utilisation.

    python -m tests.speed.stated_costs [--storage PLACE]

The conditions are those of methods.md (3.4, 8.1, 9); what it does not state is filled in here and named. A ratio is
predicted by stated; "< N hours" is a bound, which a prediction keeps or breaks. Rows are full: authors pad to the
longest of a batch. Hours are those of the devices or of the collator, whichever are more: RetroMAE's published
collator, in Python and quadratic in the length, is known to keep GPUs waiting (methods.md 3.5).

With --storage: the same device table against the trainings that lie there, which midmask has run itself.
"""

import argparse
from dataclasses import dataclass
from statistics import median

from midmask.artifact import Place
from midmask.encoders.backbone import BackboneConfig
from midmask.estimate.devices import DEVICES, Device, shape_named
from midmask.estimate.measured import finished_trainings
from midmask.estimate.trainings import Lengths, training
from midmask.experiment.steps import PretrainConfig
from midmask.objectives import ObjectiveConfig
from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.objectives.pretraining.cotmote import CoTMoTE
from midmask.objectives.pretraining.mlm import MLM
from midmask.objectives.pretraining.retromae import RetroMAE
from midmask.training.optimiser import TrainConfig

BASE, BERT_VOCABULARY = BackboneConfig(name="base"), 30_522
WIKI_AND_BOOKS = 4.4e9
"""WordPiece tokens of English Wikipedia and BookCorpus: 3.3 billion words (Devlin et al. 2019), 4 tokens for 3 words.
Not in methods.md; with the newer dump that RetroMAE took there are more."""
MSMARCO_PASSAGES = 8_841_823
COLLATOR_SECONDS, COLLATOR_LENGTH, LOADERS = 5.6261 / 64, 512, 8
"""Of a core for a row of RetroMAE's published collator at that length, and processes that load for each GPU (bowdpr's
README: 5.6261 s for a batch of 64)."""
FACTOR = 2.0


@dataclass(frozen=True)
class Stated:
    """A stated training. rows: of one step, over all devices; hours: stated, or the bound that is stated; filled_in:
    what the source leaves open; waits: whether RetroMAE's collator loads."""

    name: str
    objective: ObjectiveConfig
    rows: int
    steps: int
    lengths: Lengths
    shape: str
    hours: float
    source: str
    filled_in: str
    is_bound: bool = False
    experts: bool = False
    waits: bool = False

    def predicted(self) -> float:
        """Hours."""
        return max(self.on_devices(), self.in_collator())

    def on_devices(self) -> float:
        return self.flops() / shape_named(self.shape).rate / 3600

    def in_collator(self) -> float:
        """Hours of RetroMAE's collator, if it is what loads."""
        row = COLLATOR_SECONDS * (self.lengths.passage / COLLATOR_LENGTH) ** 2
        return self.waits * self.rows * self.steps * row / (LOADERS * shape_named(self.shape).count) / 3600

    def flops(self) -> float:
        train = TrainConfig(steps=self.steps, batch_size=self.rows, learning_rate=1e-4)
        encoder = BASE.model_copy(update={"experts": "ffn"}) if self.experts else BASE
        config = PretrainConfig(backbone=encoder, objective=self.objective, train=train)
        own = training(config, encoder, BERT_VOCABULARY, self.lengths, self.steps, kind="cuda")
        return own.flops(shape_named(self.shape).count)

    def verdict(self) -> str:
        ratio = self.predicted() / self.hours
        if self.is_bound:
            return "keeps the bound" if ratio <= 1 else "breaks the bound"
        return f"within {FACTOR:g}" if 1 / FACTOR <= ratio <= FACTOR else f"beyond {FACTOR:g}"


def epochs(count: int, rows: float, batch: int) -> int:
    return round(count * rows / batch)


STATED = (
    Stated(
        "RetroMAE, Wikipedia and books",
        RetroMAE.Config(),
        256,
        epochs(8, WIKI_AND_BOOKS / 512, 256),
        Lengths(512, 0),
        "8xA100-40G",
        48,
        "methods.md 3.4: 8 epochs, 256 x 512, about 2 days",
        "tokens of the corpora: 4.4e9",
        waits=True,
    ),
    Stated(
        "the same, by the other answer",
        RetroMAE.Config(),
        256,
        epochs(8, WIKI_AND_BOOKS / 512, 256),
        Lengths(512, 0),
        "8xA100-40G",
        72,
        "methods.md 3.4: 3 days",
        "tokens of the corpora: 4.4e9",
        waits=True,
    ),
    Stated(
        "RetroMAE, MS MARCO",
        RetroMAE.Config(),
        1024,
        epochs(20, MSMARCO_PASSAGES, 1024),
        Lengths(150, 0),
        "8xA100-40G",
        24,
        "methods.md 3.4: 20 epochs, 1024 x 150, less than a day",
        "the device of this stage: as of the first",
        is_bound=True,
        waits=True,
    ),
    Stated(
        "CoT-MAE, 800k steps",
        CoTMAE.Config(),
        512,
        800_000,
        Lengths(128, 128),
        "8xA100-40G",
        60,
        "methods.md 8.1: 512 pairs of 128 tokens, 2.5 days",
        "which A100: 40G; full spans, though 15% are short",
    ),
    Stated(
        "CoT-MoTE",
        CoTMoTE.Config(),
        2048,
        80_000,
        Lengths(144, 32),
        "8xA100-40G",
        12,
        "methods.md 9: 80k steps of 2k rows of 144 tokens, 12 hours",
        "which A100: 40G; queries of 32 tokens; both vectors decoded apart",
        experts=True,
    ),
)


def bowdpr() -> str:
    """Where the A100's utilisation is from: two published end-to-end rates, as shares of its peak."""
    lengths, peak = Lengths(512, 0), DEVICES["a100-40g"].peak
    shares = {}
    for name, objective, samples in (
        ("MLM", MLM.Config(encoder_mask_ratio=0.3), 269.708),
        ("RetroMAE", RetroMAE.Config(), 85.797),
    ):
        train = TrainConfig(steps=1, batch_size=64, learning_rate=1e-4)
        config = PretrainConfig(backbone=BASE, objective=objective, train=train)
        row = training(config, BASE, BERT_VOCABULARY, lengths, 1, kind="cuda").flops(1) / train.batch_size
        shares[name] = samples * row / peak
    mean = len(shares) / sum(1 / share for share in shares.values())
    told = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return f"bowdpr's samples a second as shares of an A100's peak: {told}; harmonic mean {mean:.1%}"


def table(cases: tuple[Stated, ...] = STATED) -> str:
    lines = [
        "| training | stated by | filled in here | FLOPs | devices, h | collator, h | stated, h | ratio | |",
        "| :------- | :-------- | :------------- | ----: | ---------: | ----------: | --------: | ----: | :- |",
    ]
    for one in cases:
        bound, collator = "< " if one.is_bound else "", f"{one.in_collator():.1f}" if one.waits else ""
        lines.append(
            f"| {one.name} | {one.source} | {one.filled_in} | {one.flops():.2g} | {one.on_devices():.1f} | {collator} "
            f"| {bound}{one.hours:g} | {one.predicted() / one.hours:.2f} | {one.verdict()} |"
        )
    return "\n".join(lines)


def own_trainings(storage: Place) -> str:
    """Of finished trainings: predicted by taken time, with the device table alone."""
    rates = {device.kind: device.rate for device in (DEVICES["cpu"], DEVICES["h200"])}
    ratios = [flops / rates[kind] / seconds for kind, flops, seconds in finished_trainings(storage)]
    if not ratios:
        return f"{storage}: no finished training of more than a few seconds"
    within = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    told = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    return f"{storage}: {within} of {len(ratios)} within {FACTOR:g}, median {median(ratios):.2f}: {told}"


def described(device: Device) -> str:
    return f"{device.name}: {device.utilisation:.0%} of {device.peak / 1e12:g} TFLOP/s"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", help="whose finished trainings are held against the table")
    options = parser.parse_args()
    print(described(DEVICES["a100-40g"]))
    print(bowdpr())
    print(table())
    if options.storage:
        print(own_trainings(Place.named(options.storage)))
