"""The system account of a server in memory: its requests and events on a clock that the test turns."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from natsctl.broker.auth.credentials import Grant
from natsctl.server.monitor.query import BadRequestError, ReloadDone
from natsctl.server.system.account import SystemAccount
from tests.support.machine import Machine, Message, Wire

SECOND = 1_000_000_000


class Net:
    def __init__(self) -> None:
        self.machine = Machine()
        self.broker = self.machine.broker
        self.reloads = 0
        self.reload_fault = ""
        server: Any = SimpleNamespace(broker=self.broker, engine=None, leafs=None)
        self.system = SystemAccount(server, lambda: None, self._reload)
        self.system.start()
        self.operator = self.client("operator", account="$SYS", user="s")

    def _reload(self, done: ReloadDone) -> None:
        self.reloads += not self.reload_fault
        done(BadRequestError(self.reload_fault) if self.reload_fault else None)

    def client(self, name: str = "test", account: str = "$G", user: str = "", **options: Any) -> Wire:
        event_listener, self.broker.event_listener = self.broker.event_listener, LATER
        wire = self.machine.connect(name, **options)
        self.broker.event_listener = event_listener
        wire.session.login.admit(Grant(user, account))
        self.broker.event_listener.connected(wire.session)
        self.machine.settle()
        return wire

    def answer_waiting(self) -> None:
        self.system.requests.run()
        self.machine.settle()

    def wait(self, seconds: float) -> None:
        self.machine.advance(int(seconds * SECOND))
        self.broker.tick()
        self.machine.settle()

    def ask(self, subject: str, body: object = b"", header: bytes = b"", asker: Wire | None = None) -> Message | None:
        wire = asker or self.operator
        sid = wire.subscribe("_INBOX.ask")
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        wire.publish(subject, payload, "_INBOX.ask", header)
        self.answer_waiting()
        wire.unsubscribe(sid)
        answers = wire.take(sid)
        assert len(answers) <= 1
        return answers[0] if answers else None

    def answer(self, subject: str, body: object = b"", asker: Wire | None = None) -> Any:
        message = self.ask(subject, body, asker=asker)
        assert message is not None, f"no answer to {subject}"
        return message.json()


LATER = SimpleNamespace(**dict.fromkeys(("connected", "refused", "disconnected"), lambda *_: None))
"""An event_listener for clients that are not where they belong yet."""


@pytest.fixture
def net() -> Net:
    return Net()
