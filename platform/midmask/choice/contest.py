"""The contest: rounds of trainings, each longer than the one before and of fewer systems, within a budget of time.

Successive halving (Jamieson & Talwalkar 2016): all rounds get the same time, so that half as many systems train about
twice as long; a small budget goes to one round. What the test queries will take is kept back. A round trains anew,
since a learning-rate schedule that was cut off tells little about a whole one. Systems are compared on the dev queries
alone; the test queries are searched once, at the end.

Steps are computed by a `Workshop`: in this process here, on a cluster in `job`. `Prices` are seconds by the clock.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol

from midmask.benchmark.layout import BenchmarkCell, cell_of, cell_on, recipe_of
from midmask.benchmark.records import collect
from midmask.benchmark.results import Result
from midmask.choice.contenders import MEASURE, Size, System, relatives, trained_of, untrained_of
from midmask.choice.contest_terms import (
    ROUND_NAMES,
    ROUNDS,
    SHORTEST,
    TESTS,
    Clock,
    Conditions,
    ContestJournal,
    Round,
    RoundPlan,
    RoundPrice,
    count_that_fits,
    first_round,
    room,
)
from midmask.choice.traces import Sample
from midmask.core.words import clock
from midmask.estimate import Estimate, estimate
from midmask.experiment.graph import Graph, Step
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.store.artifact import Artifact
from midmask.store.place import Place

log = logging.getLogger(__name__)


class Workshop(Protocol):
    """Computes steps into a storage; what is there already is not computed again."""

    storage: Place
    lanes: int  # number of trainings that run side by side

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        """What is computed from now on is this part of the contest.

        Args:
            best: the best result so far, in words; "" if there is none.
            left: seconds of the budget.
        """

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        """The artifact of a step of a recipe."""

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        """Computes the evaluations of cells as far as the time allows.

        Args:
            until: of `time.monotonic`.

        Returns:
            Name of each cell that failed or was interrupted -> why.
        """


class LocalWorkshop:
    """In this process, one step after another, without tracking."""

    lanes = 1

    def __init__(self, runner: Runner) -> None:
        self._runner, self.storage = runner, runner.storage

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        """Shows nothing; only the lines of steps are shown."""

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        return self._runner.compute(step)

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        self._runner.compute_until(Graph.left_in(self.storage, evaluations_of(cells)), until)
        return {}  # a failure is raised


def evaluations_of(cells: Sequence[BenchmarkCell]) -> list[Step]:
    return [step for cell in cells for step in cell.evaluations.values()]


CellsOf = Callable[[System, Size, str], list[BenchmarkCell]]
"""A contender, the length of its trainings, a split -> its cells."""

SizedContenders = Iterable[tuple[System, Size, str]]

NOTICEABLE = 1.0
"""Seconds; a shorter measurement consists mostly of start-up time."""


class Prices:
    """Estimated seconds of the contest's steps: trainings at the pace of those finished in the storage, encoding and
    searching at the pace measured in this contest.

    Args:
        cells_of: the cells that are computed for a contender.
        per_utilisation: the attribute of this name, as an earlier process measured it.
    """

    def __init__(self, cells_of: CellsOf, workshop: Workshop, per_utilisation: float | None) -> None:
        # Measured over estimated seconds of encoding and searching, divided by the machine utilisation that the
        # estimate assumes; None: not measured yet.
        self.per_utilisation = per_utilisation
        self._cells_of, self._workshop = cells_of, workshop

    def of_round(self, contenders: Sequence[System], size: Size) -> float:
        """Seconds to train contenders and measure them on dev."""
        return self._seconds((contender, size, "dev") for contender in contenders)

    def of_tests(self, finalists: Sequence[System], size_of: Callable[[System], Size]) -> float:
        """Seconds to search for the test queries with finalists that have been trained and measured on dev."""
        trained = [(contender, size_of(contender), "dev") for contender in finalists]
        both = [*trained, *((contender, size_of(contender), "test") for contender in finalists)]
        return max(0.0, self._seconds(both) - self._seconds(trained))

    def learn(self, untrained: Sequence[System], size: Size, measure: Callable[[], float]) -> None:
        """Learns the pace from contenders that need no training: `measure` measures them and returns its seconds."""
        plan = self._plan((contender, size, "dev") for contender in untrained)
        taken, expected = measure(), 3600 * plan.total_hours
        if taken > NOTICEABLE and expected > 0:
            self.per_utilisation = taken / expected / plan.shape.device.utilisation

    def _seconds(self, contenders: SizedContenders) -> float:
        plan = self._plan(contenders)
        trainings = sum(charge.hours for charge in plan.charges if charge.training is not None)
        pace = 1.0 if self.per_utilisation is None else self.per_utilisation * plan.shape.device.utilisation
        return 3600 * (trainings + pace * (plan.total_hours - trainings))

    def _plan(self, contenders: SizedContenders) -> Estimate:
        cells = [cell for contender in contenders for cell in self._cells_of(*contender)]
        lanes = self._workshop.lanes
        return estimate(evaluations_of(cells), self._workshop.storage, workers=lanes, side_by_side=lanes > 1)


USED = 0.9
"""Fraction of the budget that is planned; the rest is for the verdict, and for steps that take longer than expected."""

FINALISTS = 2
"""Trained systems for whose test queries time is kept."""

GROWTH = 1.25
"""Least ratio of the length of a round's trainings to that of the round before."""

MOST_FOR_TESTS = 1 / 3
"""Fraction of the budget above which the test queries search a sample instead of the whole collection."""


class Contest:
    """Runs the rounds of a contest and keeps their measurements.

    Attributes:
        dev: the result of each system on the dev queries, in the last round in which it was measured.
        sizes: the size of that round.
        measured: all contenders that were measured.
        finalists: of the measured ones, those that the test queries are searched with, the best on dev first.
    """

    def __init__(self, conditions: Conditions, workshop: Workshop, clock: Clock, journal: ContestJournal) -> None:
        self._conditions, self._workshop = conditions, workshop
        self._clock, self._journal = clock, journal
        self.dev: dict[System, Result] = {}
        self.sizes: dict[System, Size] = {}
        self._failures: dict[System, str] = {}
        self._prices = Prices(self.cells, workshop, journal.pace)
        self._end = USED * clock.budget  # seconds that are spent when the rounds are over

    def hold(self, contenders: Sequence[System]) -> None:
        """Runs all rounds; the first has as many contenders as the budget allows."""
        self._first = waiting = through = tuple(contenders)
        if self._journal.pace is None:
            self._try_the_machine(waiting)
        self._end = USED * self._clock.budget - self._keep_time_for_tests(waiting)
        for number in range(ROUNDS):
            if number == len(self._journal.rounds):
                decided = self._decide(number, waiting)
                if decided is None:
                    break
                self._journal.rounds.append(decided)
                self._journal.write()
            current = self._journal.rounds[number]
            self._train(current, number)
            through = current.contenders
            if number + 1 < ROUNDS:
                waiting = through = self._next(current)
        entered = dict.fromkeys(contender for decided in self._journal.rounds for contender in decided.contenders)
        self.measured = tuple(contender for contender in entered if contender in self.dev)
        if self._journal.finalists is None:
            self._journal.finalists = self._finalists(self.measured, through)
            self._journal.write()
        self.finalists = tuple(contender for contender in self._journal.finalists if contender in self.measured)

    @property
    def not_tried(self) -> dict[str, str]:
        """Label of each system that was not measured at all -> why."""
        measured = {str(contender) for contender in self.measured}
        return {label: why for label, why in self._journal.given_up.items() if label not in measured}

    def cells(self, contender: System, size: Size, split: str) -> list[BenchmarkCell]:
        """The cells of a contender, alone and with BM25, on the queries of a split as this contest searches them."""
        benchmark = self._conditions.make(size, [split])
        seed, survey, sample = self._conditions.seed, self._conditions.survey, self.sample(split)
        cells = []
        for key in (system.key for system in contender.searched):
            recipe = recipe_of(benchmark, key).seeded(seed)
            if sample is not None:
                cells.append(cell_on(benchmark, BenchmarkCell(key, seed, recipe, {}), sample.corpus, split, survey))
            else:
                cells.append(cell_of(benchmark, key, recipe, seed, survey))
        return cells

    def _measure(
        self, contenders: Sequence[System], size_of: Callable[[System], Size], split: str, until: float
    ) -> dict[System, Result]:
        """Measures contenders on a split until a time; returns the results that were finished."""
        cells = [cell for contender in contenders for cell in self.cells(contender, size_of(contender), split)]
        failures = self._workshop.measure(cells, until)
        self._failures |= {System.of(cell.key): failures[cell.name] for cell in cells if cell.name in failures}
        self._journal.write(self._clock.spent)
        results = collect(cells, self._workshop.storage)
        return {System.of(result.key): result for result in results if result.split == split}

    def test(self) -> dict[System, Result]:
        """Searches for the test queries with the finalists; without a time limit, since nothing is trained."""
        log.info("test queries of %d finalists", len(self.finalists))
        self._workshop.announce(TESTS, self._best_words(), lambda: self._clock.left)
        return self._measure(self.finalists, self.sizes.__getitem__, "test", float("inf"))

    def sample(self, split: str) -> Sample | None:
        """The sample that a split's queries search; None for the whole collection."""
        return self._conditions.sample(split) if split == "dev" or self._journal.sampled else None

    def _keep_time_for_tests(self, contenders: Sequence[System]) -> float:
        """Decides once how the test queries are searched: in a sample where the whole collection would take too much of
        the budget. Returns the seconds that are reserved for the untrained contenders and the trained finalists.
        """
        if self._journal.kept is None:
            tested = (*untrained_of(contenders), *trained_of(contenders)[:FINALISTS])
            self._journal.sampled = False
            kept = self._prices.of_tests(tested, lambda _: SHORTEST)
            if kept > MOST_FOR_TESTS * self._clock.budget:
                self._journal.sampled = True
                kept = self._prices.of_tests(tested, lambda _: SHORTEST)
            self._journal.kept = kept
            self._journal.write()
        return self._journal.kept

    def _finalists(self, measured: Sequence[System], through: Sequence[System]) -> tuple[System, ...]:
        """The untrained contenders, and the best of the trained ones on dev: as many as there is time to search for the
        test queries with, at least one.
        """
        untrained = untrained_of(measured)
        trained = self._best_first(through)
        left = USED * self._clock.budget - self._clock.spent
        for count in range(len(trained), 1, -1):
            if self._prices.of_tests([*untrained, *trained[:count]], lambda entry: self.sizes[entry]) <= left:
                break
        else:
            count = 1
        return (*untrained, *trained[:count])

    def _decide(self, number: int, waiting: Sequence[System]) -> Round | None:
        """Plans a round: the length of its trainings, and the contenders that the time allows; None to end the contest.
        The other contenders are given up.
        """
        left = self._end - (spent := self._clock.spent)
        if number == 0:
            price, least, most = self._price_of(waiting), len(untrained_of(waiting)), len(waiting)
            chosen: RoundPlan | None = first_round(price, least, most, left, ROUNDS, self._conditions.limits)
        else:
            waiting, chosen = self._later_round(number, waiting, left)
        if chosen is None:
            return None
        untrained = len(untrained_of(waiting))
        counts = f"{chosen.count - untrained} of {len(waiting) - untrained}"
        self._journal.give_up(
            waiting[chosen.count :], f"too little time was left (round {number + 1} trained {counts})"
        )
        log.info("round %d of %d: %d systems, %s", number + 1, ROUNDS, chosen.count, chosen.size)
        return Round(chosen.size, tuple(waiting[: chosen.count]), until=min(self._end, spent + 1.5 * chosen.seconds))

    def _later_round(
        self, number: int, waiting: Sequence[System], left: float
    ) -> tuple[Sequence[System], RoundPlan | None]:
        """Plans notably longer trainings than the last round's in an equal share of the time. If that is too little,
        plans all the time for contenders that were not trained yet, with trainings as long as the last round's:
        systems that no round had time for, then the relatives of the best. None if that is too little too.
        """
        last, seconds = self._journal.rounds[-1], left / (ROUNDS - number)
        price = self._price_of(waiting)
        longer = room(price, len(untrained_of(waiting)), len(waiting), seconds, self._conditions.limits)
        if longer is not None and longer[1].finetune >= GROWTH * last.size.finetune:
            return waiting, RoundPlan(*longer, seconds)
        repeated = [entry for entry in waiting if entry in last.contenders]
        untried = [entry for entry in self._first if entry not in self.dev and entry not in self._failures]
        candidates = (*repeated, *untried, *(entry for entry in waiting if entry not in repeated))
        price = self._price_of(candidates)
        count = count_that_fits(lambda total: price(total, last.size), len(repeated), len(candidates), left)
        return candidates, RoundPlan(count, last.size, left) if count > len(repeated) else None

    def _price_of(self, waiting: Sequence[System]) -> RoundPrice:
        """The cached price function of a round; each price takes a plan of all the round's steps."""
        return cache(lambda count, size: self._prices.of_round(waiting[:count], size))

    def _try_the_machine(self, contenders: Sequence[System]) -> None:
        """Measures the untrained contenders, and one system after the shortest training, so that rounds are planned by
        this machine's pace of encoding, searching and training. The untrained ones have no time limit, because there is
        no verdict without them.
        """
        self._workshop.announce(ROUND_NAMES[0], "", lambda: self._clock.left)
        untrained = untrained_of(contenders)
        self._prices.learn(untrained, SHORTEST, lambda: self._measure_on_dev(untrained, SHORTEST, float("inf")))
        self._journal.pace = self._prices.per_utilisation
        trained = trained_of(contenders)[:1]
        if self._prices.of_round(trained, SHORTEST) <= self._end - self._clock.spent:
            self._measure_on_dev(trained, SHORTEST, self._clock.at(USED))

    def _train(self, current: Round, number: int) -> None:
        """Trains and measures the contenders of a round by priority, as many side by side as there are lanes. No
        training begins after the round's time is up; running ones may take half the time that is reserved for the test
        queries, because an unfinished training is useless.
        """
        last = self._clock.at((USED + self._end / self._clock.budget) / 2)
        for first in range(0, len(current.contenders), self._workshop.lanes):
            group = current.contenders[first : first + self._workshop.lanes]
            self._workshop.announce(ROUND_NAMES[number], self._best_words(), lambda: self._clock.left)
            until = last if self._clock.spent <= current.until else 0.0  # 0: only what an earlier run has measured
            self._measure_on_dev(group, current.size, until)
            for contender in group:
                if contender not in self.dev:
                    why = self._failures.get(contender, "the time was up before it was measured")
                    self._journal.give_up([contender], f"round {number + 1}: {why}")
            best = self._best_words() or "nothing measured yet"
            log.info("%s; %s of %s spent", best, clock(self._clock.spent), clock(self._clock.budget))

    def _measure_on_dev(self, contenders: Sequence[System], size: Size, until: float) -> float:
        """Trains and measures contenders on dev; returns the seconds it took."""
        began = self._clock.spent
        for system, result in self._measure(contenders, lambda _: size, "dev", until).items():
            self.dev[system], self.sizes[system] = result, size
        return self._clock.spent - began

    def _next(self, current: Round) -> tuple[System, ...]:
        """The contenders of the next round: the untrained ones, the better half, and the relatives of the best."""
        trained = self._best_first(current.contenders)
        if not trained:
            return ()
        better = trained[: max(2, (len(trained) + 1) // 2)]
        variants = relatives(trained[0], self._conditions.representations)
        new = [entry for entry in variants if entry not in self.dev]
        return (*untrained_of(current.contenders), *better, *new)

    def _best_first(self, contenders: Sequence[System]) -> list[System]:
        """The contenders that were trained and measured, the best score first."""
        measured = [contender for contender in trained_of(contenders) if contender in self.dev]
        return sorted(measured, key=self._score, reverse=True)

    def _score(self, contender: System) -> float:
        """The measure on dev, alone or with BM25, whichever is better; 0 if neither was measured."""
        scores = [self.dev[system].measures[MEASURE] for system in contender.searched if system in self.dev]
        return max(scores, default=0.0)

    def _best_words(self) -> str:
        """Dev measure and name of the best system so far; "" before one was measured."""
        if not self.dev:
            return ""
        best = max(self.dev, key=lambda system: self.dev[system].measures[MEASURE])
        return f"dev {MEASURE} {self.dev[best].measures[MEASURE]:.3f} ({best})"
