"""The long work of one stream or account, in slices, and the calls that wait for its end.

Theory of operation. Work on possibly very many messages is a generator (`store.steps`). It begins at once, within the
call that requests it, up to the cost of a short call, and usually ends there. The rest continues in turns of the
engine's ready queue of some milliseconds each, between the work of other streams and the deliveries of consumers. Jobs
of one stream go one after another.

Calls for the stream meanwhile wait in the order of their arrival, so that they find the stream as if the job had been
done in one moment. Requests wait for every job. A job that changes the stream calls `shut`: from then on publishes,
acks, pull requests and direct gets wait too, consumers deliver nothing, and every other part with a turn is deferred. A
request that may change the stream shuts it as well while it waits, so that no message overtakes it. The shell stops
reading from connections that publish into a stream with much waiting work. Source: docs/adr/0021.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from natsctl.store.errors import StoreError
from natsctl.store.steps import STEP, Steps

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.jetstream.engine import Engine
    from natsctl.jetstream.engine_options import Runnable
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.wire.publish_run import PublishRun

FIRST_SLICE: Final = 256
"""Cost that a job may spend within the call that begins it, in messages examined one by one (`store.steps`)."""
SLICE: Final = 512
"""Cost that the jobs of one stream may spend in one turn: about 3 ms."""
REQUEST_COST: Final = 32
MAX_WAITING: Final = 10_000
"""Requests that may wait for one stream; another one is not answered, as by nats-server with a full queue."""


class _Job(NamedTuple):
    steps: Steps[Any]
    then: Callable[[Any], object] | None


class _Held(NamedTuple):
    """A waiting call, with its cost, and whether it only reads."""

    call: Callable[..., object]
    arguments: tuple[Any, ...]
    cost: int
    size: int
    reads: bool


class Work:
    """The jobs of one stream, and the calls that wait for them."""

    __slots__ = (
        "_begun",
        "_changes",
        "_deferred",
        "_engine",
        "_held",
        "_jobs",
        "_reopened",
        "_requests",
        "_running",
        "_shut",
        "_stream",
        "closed",
    )

    def __init__(self, engine: Engine, stream: Stream | None = None) -> None:
        """Prepare the jobs of a stream, or of an account (never shut)."""
        self._stream = stream
        self._engine = engine
        self._jobs: deque[_Job] = deque()
        self._held: deque[_Held] = deque()
        self._changes = 0
        """Calls among those held that may change the stream."""
        self._requests = 0
        self._deferred: dict[Runnable, None] = {}
        self._running = self._shut = self._reopened = False
        self._begun = 0
        """Cost of jobs that began as others ended."""
        self.closed = False
        """True if messages, acks and direct gets have to wait too."""

    @property
    def busy(self) -> bool:
        return bool(self._jobs or self._held)

    # Jobs

    def begin(self, steps: Steps[Any], then: Callable[[Any], object] | None = None) -> int:
        """Begin a job, or queue it after those under way, and return its cost so far; `then` is called with its result.

        A StoreError ends a job without a result: the store has reported it.
        """
        self._jobs.append(_Job(steps, then))
        spent = 0
        if len(self._jobs) == 1 and not self._held and not self._running:
            try:
                while self._jobs and spent < FIRST_SLICE:
                    spent += self._step()
                self._begun = spent
            finally:  # a fault in one call must not leave the stream closed to all others
                self._continue()
        return spent

    def begin_in_order(self, steps: Steps[Any]) -> None:
        """Begin a job that no later call may overtake: published messages are handled in their order."""
        if self._jobs:
            self._hold(_Held(self.begin_in_order, (steps,), 1, 0, False))
        else:
            self._shut = True
            self.begin(steps)

    def after(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call after everything that is under way; at once without that."""
        if self.busy:
            self.begin(_serving(deque([_Held(call, arguments, 1, 0, True)])))
        else:
            call(*arguments)

    def shut(self) -> None:
        """Hold all other calls until the present job has ended; without one there is nothing to wait for."""
        self._shut = self._running

    def _step(self) -> int:
        job = self._jobs[0]
        self._running, self._begun = True, 0
        try:
            return next(job.steps)
        except StopIteration as end:
            self._running = False
            self._ended(job, end.value)
        except StoreError:
            self._running = False
            self._ended(job._replace(then=None), None)
        except BaseException:
            self._jobs.popleft()
            raise
        finally:
            self._running = False
        return 1 + self._begun

    def _ended(self, job: _Job, result: object) -> None:
        self._jobs.popleft()
        self._shut = False
        if job.then is not None:
            job.then(result)

    def run(self, budget: int) -> int:
        spent, budget = 0, min(budget, SLICE)
        try:
            while spent < budget and (self._jobs or self._held):
                spent += self._step() if self._jobs else self._serve_held()
        finally:
            self._continue()
        return spent

    def _continue(self) -> None:
        """Open or close the stream by the remaining work, and ask for a turn for it."""
        closed = bool(self._jobs and self._shut) or self._changes > 0
        if (closed is not self.closed or self._reopened) and self._stream is not None:
            self._reopened = False
            self._open_or_close(closed)
            if closed:
                self._engine.closed[self._stream.store] = None
            else:
                self._engine.closed.pop(self._stream.store, None)
                deferred, self._deferred = self._deferred, {}
                for runnable in deferred:
                    self._engine.ready(runnable)
        if self._jobs or self._held:
            self._engine.ready(self)

    def _open_or_close(self, closed: bool) -> None:
        if closed is not self.closed and self._stream is not None:
            self.closed = closed
            self._stream.hold_back(closed)

    def finish(self) -> None:
        """Do everything that is left in one go; for a server that stops."""
        while self._jobs or self._held:
            if self._jobs:
                self._step()
            else:
                self._serve_held()
        self._continue()

    def stop(self) -> None:
        """Drop every job, and serve the waiting calls in steps: they will find that the stream was removed.

        As for every job of the account, no stream is created meanwhile.
        """
        jobs, self._jobs = self._jobs, deque()
        held, self._held = self._held, deque()
        for job in jobs:
            job.steps.close()
        for waiting in held:
            self._let_go(waiting)
        self._continue()
        if held and self._stream is not None:
            self._stream.js.work.begin(_serving(held))

    def defers(self, runnable: Runnable) -> bool:
        """Return whether a part with a turn must wait; it is made ready again afterwards."""
        if self.closed:
            self._deferred[runnable] = None
        return self.closed

    # Waiting calls

    def hold_request(self, serve: Callable[[], object], reads: bool) -> None:
        """Serve a request once it is its turn; with `reads` it changes nothing."""
        if self._requests < MAX_WAITING:
            self._requests += 1
            self._hold(_Held(self._serve, (serve,), REQUEST_COST, 0, reads))

    def _serve(self, serve: Callable[[], object]) -> None:
        self._requests -= 1
        serve()

    def hold(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call for one message when its turn comes."""
        self._hold(_Held(call, arguments, 1, sum(len(a) for a in arguments if isinstance(a, bytes)), False))

    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Keep a published message; the broker's handler while the stream is closed."""
        assert self._stream is not None
        self.hold(self._stream.pipeline.publish, subject, reply, header, payload, origin)

    def publish_run(self, subject: bytes, run: PublishRun) -> None:
        """Keep a run of published messages; the broker's handler for runs while the stream is closed."""
        for _, its_subject, reply, header, payload in run.ops():
            self.publish(its_subject, reply, header, payload, None)

    def _hold(self, held: _Held) -> None:
        self._held.append(held)
        if not held.reads and self._stream is not None:
            self._changes += 1
            store = self._stream.store
            store.held += 1
            store.held_bytes += held.size
        if not self._running:
            self._continue()

    def _serve_held(self) -> int:
        """Make the call that has waited longest."""
        held = self._held.popleft()
        self._let_go(held)
        if self.closed:  # the call would wait again
            self._open_or_close(False)
            self._reopened = True
        held.call(*held.arguments)
        return held.cost

    def _let_go(self, held: _Held) -> None:
        if not held.reads and self._stream is not None:
            self._changes -= 1
            store = self._stream.store
            store.held -= 1
            store.held_bytes -= held.size


def _serving(held: deque[_Held]) -> Steps[None]:
    cost = 0
    while held:
        call = held.popleft()
        call.call(*call.arguments)
        cost += call.cost
        if cost >= STEP:
            yield cost
            cost = 0
