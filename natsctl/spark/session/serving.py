"""The process of Spark in background: a Spark whose Java is also a Spark Connect server, until it is told to end.

Spark's own program for such servers would give the Python processes of each session to no other. Here they stay, with
all that they have imported, for the next command's session.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from natsctl.api.errors import NatsctlError
from natsctl.spark.session.opened import own_session
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.practice import backup, table
from natsctl.spark.session.virtual_machine import Launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "natsctl.spark.session.serving"
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
LOOK_S = 10.0
"""Seconds between two looks whether the server is in use, and whether its Java is there."""
WARM_S = 900.0
"""So long after a use the next is prepared for."""
PRACTICE_S = 40.0
"""Spark ends the Python processes that nothing has used for a minute; their imports are half of a query's time."""


@dataclass(frozen=True)
class Order:
    """What to serve: sent to the process on its stdin, as it may hold secrets. `idle_stop_s` 0 is for never."""

    options: SparkOptions
    launch: Launch
    idle_stop_s: float


def main() -> None:
    """Serve what stdin says, logging to stderr; ends with SIGTERM, when it was idle long enough, or with its Java."""
    signal.signal(signal.SIGTERM, _end)
    order: Order = pickle.load(sys.stdin.buffer)
    with ExitStack() as stack:
        log = stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "rb", buffering=0))
        try:
            session = stack.enter_context(own_session(order.options, order.launch, log))
        except NatsctlError as failure:
            sys.exit(str(failure))
        if order.options.is_local:
            folder = stack.enter_context(backup())
            wait_until_idle(session, order.idle_stop_s, lambda: practise_again(session, folder))
        else:
            wait_until_idle(session, order.idle_stop_s)


def wait_until_idle(session: SparkSession, idle_stop_s: float, practise: Callable[[], None] = lambda: None) -> None:
    """Return when nobody has used the server for so long. Raises what PySpark does when its Java is gone.

    Calls `practise` every PRACTICE_S, from the first use until WARM_S after the last, while nobody uses the server.
    """
    begun_s = used_s = practised_s = time.monotonic()
    before = sign_of_use(session)
    while not idle_stop_s or time.monotonic() - used_s < idle_stop_s:
        time.sleep(min(LOOK_S, idle_stop_s or LOOK_S))
        sign, now_s = sign_of_use(session), time.monotonic()
        if sign is None or sign != before:
            used_s, practised_s, before = now_s, now_s, sign
        elif used_s > begun_s and now_s - used_s < WARM_S and now_s - practised_s >= PRACTICE_S:
            practise()
            practised_s = time.monotonic()


def practise_again(session: SparkSession, folder: str) -> None:
    """Use the Python processes of a query, also where the data source is not known: that is for commands to tell."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        table(session, folder).where("seq > 1").count()


def sign_of_use(session: SparkSession) -> object:
    """What is another after the server was used; None while it is."""
    # An object of Scala, in Java's spelling.
    service = getattr(cast(Any, session)._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    server = getattr(service, "MODULE$")
    if server.sessionManager().listActiveSessions().nonEmpty():
        return None
    executions = server.listActiveExecutions()
    return executions.left().get() if executions.isLeft() else None


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
