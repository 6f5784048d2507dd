"""How workers report to the driver: they push events, the driver drains them; it alone writes to MLflow or a terminal.

Events wait in one actor on the driver's node, which holds a list. What it has accepted is lost only with its death; Ray
then starts it again, empty. Whatever goes wrong, the training goes on: its trace in the store has all values.
"""

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from midmask.core.process import ticking
from midmask.errors import reason

log = logging.getLogger(__name__)

WAIT_S = 30.0
"""How long a push or a drain waits for the actor, which Ray needs a few seconds to start again."""


class Mailbox:
    """Pickled events in the order of their arrival: unpickled here, they would import what the workers import."""

    def __init__(self) -> None:
        self._events: list[bytes] = []

    def push(self, event: bytes) -> None:
        self._events.append(event)

    def take(self) -> list[bytes]:
        taken, self._events = self._events, []
        return taken


class Channel:
    """The driver's end of a channel (`open`). Sent to tasks and actors, it becomes a worker's end."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox
        self._asked, self._is_late = None, False

    def __reduce__(self) -> tuple[type["Channel"], tuple[Any]]:
        return Channel, (self._mailbox,)

    def push(self, event: Any) -> None:
        """Sends an event and waits until it is accepted, `WAIT_S` at most, or not at all of an actor that was late the
        last time; raises nothing of Ray's.
        """
        packed = pickle.dumps(event)
        with suppress(Exception):  # of Ray, in whatever state it is
            self._answer(self._mailbox.push.remote(packed), 0.0 if self._is_late else WAIT_S)

    def drain(self) -> list[Any]:
        """All events that have arrived since the last call, in their order. If the actor does not answer within
        `WAIT_S`, they come with a later call.
        """
        self._asked = self._asked or self._mailbox.take.remote()
        try:
            events = self._answer(self._asked, WAIT_S)
        except GetTimeoutError:
            return []
        except RayError:
            events = []
        self._asked = None
        return [pickle.loads(event) for event in events]

    def _answer(self, reference: Any, seconds: float) -> Any:
        try:
            answer = ray.get(reference, timeout=seconds)
        except Exception as error:
            if not self._is_late:
                log.warning("reports to the driver are late or lost (%s); the work goes on", reason(error))
            self._is_late = True
            raise
        self._is_late = False
        return answer

    @staticmethod
    @contextmanager
    def open() -> Iterator["Channel"]:
        """The driver's end, for the length of a block."""
        place = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": place}
        channel = Channel(ray.remote(**options)(Mailbox).remote())
        try:
            yield channel
        finally:
            with suppress(RayError):
                ray.kill(channel._mailbox)

    @contextmanager
    def forwarding(self, to: Callable[[Any], None], *, every_s: float = 1.0) -> Iterator[None]:
        """Calls `to` with every event that arrives while the block runs, on a thread; the last ones when it ends. One
        that makes `to` raise is logged and left out: it ends neither the thread nor the work.
        """

        def forward() -> None:
            for event in self.drain():
                try:
                    to(event)
                except Exception:
                    log.exception("a report is left out")

        try:
            with ticking(forward, every_s, "midmask-channel"):
                yield
        finally:
            forward()
