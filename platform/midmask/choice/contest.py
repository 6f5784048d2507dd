"""The contest: rounds of trainings, each longer than the one before and of fewer systems, within a budget of time.

Successive halving (Jamieson & Talwalkar 2016): all rounds get the same time, so that half as many systems train about
twice as long; a small budget goes to one round. What the test queries will take is kept back, for fewer finalists
where nothing could be trained otherwise. A round trains anew, since a learning-rate schedule that was cut off tells
little about a whole one. Systems are compared on the dev queries alone; the test queries are searched once, at the end.

Steps are computed by a `Workshop`: in this process here, on a cluster in `job`. `Prices` are seconds by the clock.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

from midmask.benchmark.layout import BenchmarkCell, cell_of, cell_on, recipe_of
from midmask.benchmark.records import collect
from midmask.benchmark.results import Result, SystemKey
from midmask.choice.contenders import MEASURE, Contender, Size, name_of, relatives, trained_of, untrained_of
from midmask.choice.contest_terms import (
    ENOUGH,
    ROUND_NAMES,
    ROUNDS,
    SHORTEST,
    TELLING_STEPS,
    TESTS,
    Clock,
    Conditions,
    ContestJournal,
    ContestOutcome,
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


class Workshop(Protocol):
    """Computes steps into a storage; what is there already is not computed again."""

    @property
    def storage(self) -> Place: ...

    @property
    def lanes(self) -> int:
        """How many trainings run side by side."""

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
        self._runner = runner

    @property
    def storage(self) -> Place:
        return self._runner.storage

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        """Nothing is shown here but the lines of steps."""

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        return self._runner.run(step)

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        self._runner.run_until(Graph.left_in(self.storage, evaluations_of(cells)), until)
        return {}  # a failure is raised


def evaluations_of(cells: Sequence[BenchmarkCell]) -> list[Step]:
    return [step for cell in cells for step in cell.evaluations.values()]


CellsOf = Callable[[Contender, Size, str], list[BenchmarkCell]]
"""A contender, the length of its trainings, a split -> its cells."""

SizedContenders = Iterable[tuple[Contender, Size, str]]

NOTICEABLE = 1.0
"""Seconds: what takes less tells mostly how long it takes to begin."""


class Prices:
    """The estimate's figures. Those of trainings follow the trainings that are finished in the storage, as everywhere;
    those of encoding and searching follow what they took in this contest.

    per_utilisation: seconds that encoding and searching take, over those of the estimate, over the utilisation that it
    took for the machine's, to which it is inverse; None: not known yet.

    Args:
        cells_of: what is computed of a contender. per_utilisation: as an earlier process learned it.
    """

    def __init__(self, cells_of: CellsOf, workshop: Workshop, per_utilisation: float | None) -> None:
        self.per_utilisation = per_utilisation
        self._cells_of, self._workshop = cells_of, workshop

    def of_round(self, contenders: Sequence[Contender], size: Size) -> float:
        """Of training and measuring them on dev."""
        return self._seconds((one, size, "dev") for one in contenders)

    def of_tests(self, finalists: Sequence[Contender], size_of: Callable[[Contender], Size]) -> float:
        """Of searching the whole collection for the test queries, once they have been trained and measured on dev."""
        trained = [(one, size_of(one), "dev") for one in finalists]
        both = [*trained, *((one, size_of(one), "test") for one in finalists)]
        return max(0.0, self._seconds(both) - self._seconds(trained))

    def learn(self, untrained: Sequence[Contender], size: Size, measure: Callable[[], float]) -> None:
        """Measures contenders that need no training on dev, and remembers by how much the estimate of it was off.

        Args:
            measure: does it, and tells the seconds.
        """
        plan = self._plan((one, size, "dev") for one in untrained)
        taken, expected = measure(), 3600 * plan.total_hours
        if taken > NOTICEABLE and expected > 0:
            self.per_utilisation = taken / expected / plan.shape.device.utilisation

    def _seconds(self, wanted: SizedContenders) -> float:
        plan = self._plan(wanted)
        trainings = sum(plan.hours(charge) for charge in plan.charges if charge.training is not None)
        pace = 1.0 if self.per_utilisation is None else self.per_utilisation * plan.shape.device.utilisation
        return 3600 * (trainings + pace * (plan.total_hours - trainings))

    def _plan(self, wanted: SizedContenders) -> Estimate:
        cells = [cell for one in wanted for cell in self._cells_of(*one)]
        lanes = self._workshop.lanes
        return estimate(evaluations_of(cells), self._workshop.storage, workers=lanes, side_by_side=lanes > 1)


log = logging.getLogger(__name__)

USED = 0.9
"""Share of the budget that is planned with; the rest is for the verdict, and for what takes longer than expected."""

FINALISTS = 2
"""Trained systems for whose test queries time is kept."""

GROWTH = 1.25
"""How many times as long as the last round's trainings those of the next one are at least: less tells nothing new."""

MOST_FOR_TESTS = 1 / 3
"""Share of the budget above which the test queries are not searched in the whole collection, but in a sample of it."""


class Contest:
    """Holds the rounds and remembers what was measured."""

    def __init__(self, conditions: Conditions, workshop: Workshop, clock: Clock, journal: ContestJournal) -> None:
        self._conditions, self._workshop = conditions, workshop
        self._clock, self._journal = clock, journal
        self._dev: dict[SystemKey, Result] = {}
        self._before: dict[SystemKey, float] = {}
        self._sizes: dict[SystemKey, Size] = {}
        self._failures: dict[SystemKey, str] = {}
        self._prices = Prices(self.cells, workshop, journal.pace)
        self._end = USED * clock.budget  # seconds that are spent when the rounds are over

    def hold(self, contenders: Sequence[Contender]) -> ContestOutcome:
        """All rounds; the first is with all that the budget has room for."""
        self._first = waiting = through = tuple(contenders)
        if self._journal.pace is None:
            self._try_the_machine(waiting)
        price = self._price_of(waiting)  # one for both, since each of its prices takes a plan
        self._end = USED * self._clock.budget - self.keep_time_for_tests(waiting, price)
        for number in range(ROUNDS):
            if number == len(self._journal.rounds):
                decided = self._decide(number, waiting, price)
                if decided is None:
                    break
                self._journal.decide(decided)
            current = self._journal.rounds[number]
            self._train(current, number)
            through = current.contenders
            if number + 1 < ROUNDS:
                waiting = through = self._next(current)
        every = dict.fromkeys(one for decided in self._journal.rounds for one in decided.contenders)
        measured = tuple(one for one in every if one.keys[0] in self._dev)
        if self._journal.finalists is None:
            self._journal.choose_finalists(self._finalists(measured, through))
        finalists = tuple(one for one in self._journal.finalists or () if one in measured)
        journal, sample = self._journal, self._sample("test")
        return ContestOutcome(self._sizes, self._dev, measured, finalists, journal.given_up, sample, journal.enough)

    def cells(self, contender: Contender, size: Size, split: str) -> list[BenchmarkCell]:
        """The cells of a contender, alone and with BM25, on the queries of a split as this contest searches them."""
        benchmark = self._conditions.make(size, [split])
        seed, survey, small = self._conditions.seed, self._conditions.survey, self._sample(split)
        found = []
        for key in contender.keys:
            recipe = recipe_of(benchmark, key).seeded(seed)
            if small is not None:
                found.append(cell_on(benchmark, BenchmarkCell(key, seed, recipe, {}), small.corpus, split, survey))
            else:
                found.append(cell_of(benchmark, key, recipe, seed, survey))
        return found

    def measure(
        self, contenders: Sequence[Contender], size_of: Callable[[Contender], Size], split: str, until: float
    ) -> dict[SystemKey, Result]:
        """What could be measured in time."""
        cells = [cell for contender in contenders for cell in self.cells(contender, size_of(contender), split)]
        failures = self._workshop.measure(cells, until)
        self._failures |= {cell.key: failures[cell.name] for cell in cells if cell.name in failures}
        self._journal.write(self._clock.spent)
        return {result.key: result for result in collect(cells, self._workshop.storage) if result.split == split}

    def announce_tests(self) -> None:
        """The rounds are over."""
        self._workshop.announce(TESTS, self._best_words(), lambda: self._clock.left)

    def _sample(self, split: str) -> Sample | None:
        """What a split's queries are searched in; None for the whole collection."""
        return self._conditions.sample(split) if split == "dev" or self._journal.sampled else None

    def keep_time_for_tests(self, contenders: Sequence[Contender], price: RoundPrice) -> float:
        """The seconds that are kept for the test queries; what they are searched in is decided with it, once."""
        if self._journal.kept is None:
            options: list[tuple[bool, float]] = []
            for option in self._test_options(contenders):
                options.append(option)
                if self._can_train(contenders, price, option[1]):
                    break
            else:
                option = options[0]
            self._journal.sampled, self._journal.kept = option
            self._journal.enough = self._enough(contenders, price)
            self._journal.write()
        return self._journal.kept

    def _test_options(self, contenders: Sequence[Contender]) -> Iterator[tuple[bool, float]]:
        """Whether a sample is searched for the test queries, and the seconds to keep for that, the best way first. The
        whole collection is not searched where that takes too much of the budget.
        """
        for sampled, finalists in ((False, FINALISTS), (False, 1), (True, FINALISTS), (True, 1)):
            self._journal.sampled = sampled
            kept = self._kept_for_tests(contenders, finalists)
            if sampled or kept <= MOST_FOR_TESTS * self._clock.budget:
                yield sampled, kept

    def _kept_for_tests(self, contenders: Sequence[Contender], finalists: int) -> float:
        """Seconds that the test queries take of what needs no training and of the first systems that are trained."""
        tested = (*untrained_of(contenders), *trained_of(contenders)[:finalists])
        return self._prices.of_tests(tested, lambda _: SHORTEST)

    def _can_train(self, contenders: Sequence[Contender], price: RoundPrice, kept: float) -> bool:
        """Whether a middle training could be compared if so many seconds were kept for the test queries; where none
        takes part, whether anything could be trained.
        """
        wanted = [one for one in contenders if one.has_middle_training] or trained_of(contenders)
        left = USED * self._clock.budget - kept - self._clock.spent
        found = self._first_round(price, contenders, left)
        return not wanted or any(one in wanted for one in contenders[: found.count])

    def _enough(self, contenders: Sequence[Contender], price: RoundPrice) -> float | None:
        """Seconds of a budget that would train `ENOUGH` systems for `TELLING_STEPS`; none without a middle training."""
        count = len(untrained_of(contenders)) + min(ENOUGH, len(trained_of(contenders)))
        if not any(one.has_middle_training for one in contenders[:count]):
            return None
        trained = price(count, self._conditions.limits.size(TELLING_STEPS))
        return (self._clock.spent + trained + self._kept_for_tests(contenders, FINALISTS)) / USED

    def _finalists(self, measured: Sequence[Contender], through: Sequence[Contender]) -> tuple[Contender, ...]:
        """What needs no training, and of those that came through the best on dev, as many as there is time to search
        for the test queries with; the best one in any case.
        """
        untrained = untrained_of(measured)
        trained = self._best_first(through)
        left = USED * self._clock.budget - self._clock.spent
        for count in range(len(trained), 1, -1):
            if self._prices.of_tests([*untrained, *trained[:count]], lambda one: self._sizes[one.keys[0]]) <= left:
                break
        else:
            count = 1
        self._journal.give_up(trained[count:], "too little time was left to search for the test queries with it")
        return (*untrained, *trained[:count])

    def _decide(self, number: int, waiting: Sequence[Contender], price: RoundPrice) -> Round | None:
        """The round's size, by what trainings cost here, after leaving out as many as it takes to afford the others;
        None if there is nothing more to learn. price: of the first round.
        """
        left = self._end - (spent := self._clock.spent)
        if number == 0:
            found: RoundPlan | None = self._first_round(price, waiting, left)
        else:
            waiting, found = self._later_round(number, waiting, left)
        if found is None:
            return None
        untrained = len(untrained_of(waiting))
        counts = f"{found.count - untrained} of {len(waiting) - untrained}"
        self._journal.give_up(waiting[found.count :], f"too little time was left (round {number + 1} trained {counts})")
        log.info("round %d of %d: %d systems, %s", number + 1, ROUNDS, found.count, found.size)
        return Round(found.size, tuple(waiting[: found.count]), until=min(self._end, spent + 1.5 * found.seconds))

    def _first_round(self, price: RoundPrice, waiting: Sequence[Contender], left: float) -> RoundPlan:
        return first_round(price, len(untrained_of(waiting)), len(waiting), left, ROUNDS, self._conditions.limits)

    def _later_round(
        self, number: int, waiting: Sequence[Contender], left: float
    ) -> tuple[Sequence[Contender], RoundPlan | None]:
        """Its share of the time for notably longer trainings than the last round's. If that is too little, all the time
        for what has not been trained yet, with trainings as long as the last round's: systems that no round had time
        for, then the relatives of the best. None if that is too little too.
        """
        last, seconds = self._journal.rounds[-1], left / (ROUNDS - number)
        price = self._price_of(waiting)
        longer = room(price, len(untrained_of(waiting)), len(waiting), seconds, self._conditions.limits)
        if longer is not None and longer[1].finetune >= GROWTH * last.size.finetune:
            return waiting, RoundPlan(*longer, seconds)
        known = [one for one in waiting if one in last.contenders]
        untried = [one for one in self._first if one.keys[0] not in self._dev and one.keys[0] not in self._failures]
        every = (*known, *untried, *(one for one in waiting if one not in known))
        price = self._price_of(every)
        count = count_that_fits(lambda wanted: price(wanted, last.size), len(known), len(every), left)
        return every, RoundPlan(count, last.size, left) if count > len(known) else None

    def _price_of(self, waiting: Sequence[Contender]) -> RoundPrice:
        """Each price is worked out once: a plan of all the round's steps is made for it."""
        return cache(lambda count, size: self._prices.of_round(waiting[:count], size))

    def _try_the_machine(self, contenders: Sequence[Contender]) -> None:
        """Measures what needs no training, and one system after the shortest, so that rounds are planned by what
        encoding, searching and training take here, whatever the estimate takes for this machine's pace. There is no
        verdict without the former, so they have no limit.
        """
        self._workshop.announce(ROUND_NAMES[0], "", lambda: self._clock.left)
        untrained = untrained_of(contenders)
        self._prices.learn(untrained, SHORTEST, lambda: self._measure_on_dev(untrained, SHORTEST, float("inf")))
        self._journal.pace = self._prices.per_utilisation
        trained = trained_of(contenders)[:1]
        if self._prices.of_round(trained, SHORTEST) <= self._end - self._clock.spent:
            self._measure_on_dev(trained, SHORTEST, self._clock.at(USED))

    def _train(self, current: Round, number: int) -> None:
        """Trains and measures a round, by priority, as many side by side as there are lanes. Once its time is up no
        other training begins; what runs may go on into half the time that is kept for the test queries, since half a
        training is worth nothing.
        """
        last = self._clock.at((USED + self._end / self._clock.budget) / 2)
        for first in range(0, len(current.contenders), self._workshop.lanes):
            group = current.contenders[first : first + self._workshop.lanes]
            self._workshop.announce(ROUND_NAMES[number], self._best_words(), lambda: self._clock.left)
            until = last if self._clock.spent <= current.until else 0.0  # 0: only what an earlier run has measured
            self._measure_on_dev(group, current.size, until)
            for one in group:
                if one.keys[0] not in self._dev:
                    why = self._failures.get(one.keys[0], "the time was up before it was measured")
                    self._journal.give_up([one], f"round {number + 1}: {why}")
            best = self._best_words() or "nothing measured yet"
            log.info("%s; %s of %s spent", best, clock(self._clock.spent), clock(self._clock.budget))

    def _measure_on_dev(self, contenders: Sequence[Contender], size: Size, until: float) -> float:
        """The seconds that it took."""
        began = self._clock.spent
        for key, result in self.measure(contenders, lambda _: size, "dev", until).items():
            self._before[key] = self._dev[key].measures[MEASURE] if key in self._dev else float("-inf")
            self._dev[key], self._sizes[key] = result, size
        return self._clock.spent - began

    def _next(self, current: Round) -> tuple[Contender, ...]:
        """The better half of a round without those that cannot win, and the relatives of the best."""
        trained = self._best_first(current.contenders)
        if not trained:
            return ()
        kept = [one for one in trained[: max(2, (len(trained) + 1) // 2)] if not self._cannot_win(one, trained[0])]
        self._journal.give_up(
            [one for one in trained if one not in kept],
            f"behind after {current.size}: {MEASURE} on dev, best {self._score(trained[0]):.3f}",
        )
        own = relatives(trained[0], self._conditions.representations, taught=self._conditions.taught)
        new = [one for one in own if one.keys[0] not in self._dev]
        return (*untrained_of(current.contenders), *kept, *new)

    def _best_first(self, contenders: Sequence[Contender]) -> list[Contender]:
        """Those that are trained and were measured, by their score."""
        found = [one for one in trained_of(contenders) if one.keys[0] in self._dev]
        return sorted(found, key=self._score, reverse=True)

    def _score(self, contender: Contender) -> float:
        """On dev, of the better of its two searches; 0 if neither was measured."""
        found = [self._dev[key].measures[MEASURE] for key in contender.keys if key in self._dev]
        return max(found, default=0.0)

    def _cannot_win(self, contender: Contender, best: Contender) -> bool:
        """Whether it is further behind than twice what its last round has gained it."""
        own, other = self._dev[contender.keys[0]], self._dev[best.keys[0]]
        gap = other.measures[MEASURE] - own.measures[MEASURE]
        return gap > 2 * abs(own.measures[MEASURE] - self._before[contender.keys[0]])

    def _best_words(self) -> str:
        """Dev measure and name of the best system so far; "" before one was measured."""
        if not self._dev:
            return ""
        key = max(self._dev, key=lambda one: self._dev[one].measures[MEASURE])
        return f"dev {MEASURE} {self._dev[key].measures[MEASURE]:.3f} ({' · '.join(name_of(key))})"
