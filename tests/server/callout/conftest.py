"""A server of each kind whose configuration delegates logins to a service, for the tests that share it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.server.callout.responses import RESPONSES
from tests.support.callouts import ISSUER, CalloutService, Decide, Request
from tests.support.conf_server import ConfServer
from tests.support.operators import Key, Visitor

NKEY = Key("user")
"""A user of the configuration that has a key."""
CONF = f"""
server_name: A
server_tags: [az1, ssd]
accounts {{
  AUTH {{ users: [{{user: auth, password: pwd}}] }}
  FOO {{ users: [{{user: foo, password: pwd}}, {{nkey: {NKEY.public}}}] }}
  FULL {{ users: [{{user: full, password: pwd}}], limits: {{max_connections: 1}} }}
  NARROW {{ limits: {{max_subscriptions: 3, max_payload: 100}} }}
  DEFAULTS {{ default_permissions: {{publish: {{deny: "no"}}}} }}
  SYS {{ users: [{{user: sys, password: pwd}}] }}
}}
system_account: SYS
authorization {{
  timeout: 20
  auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth, sys] }}
}}
"""


class Place(NamedTuple):
    """A running server, the service that it asks, and somebody in the system account."""

    process: ServerProcess
    service: CalloutService
    system: Visitor

    @property
    def url(self) -> str:
        return self.process.url

    def show(self, user: str, password: str = "x", **more: object) -> Visitor:
        visitor = Visitor(self.url)
        visitor.show(user=user, **{"pass": password}, **more)
        return visitor


def decide(request: Request) -> bytes | None:
    """Return the response that the name of the user, or its token, asks for."""
    shown = request.connect
    name = shown.get("user") or shown.get("auth_token") or shown.get("nkey", "")
    make: Callable[[Request], bytes | None] = RESPONSES.get(name, lambda r: r.response(r.user(aud="FOO")))
    return make(request)


def running(kind: Kind, folder: Path, conf: str = CONF) -> ServerProcess:
    return ConfServer(folder, kind, conf, "-D")


@pytest.fixture(scope="session", params=["natsctl", "reference"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The server of a kind with its service, for all tests that change nothing of them."""
    with (
        running(request.param, tmp_path_factory.mktemp("callout")) as process,
        CalloutService(process.url, decide, user="auth", password="pwd") as service,
    ):
        system = Visitor(process.url)
        system.show(user="sys", **{"pass": "pwd"})
        yield Place(process, service, system)
        system.close()


def drain(service: CalloutService) -> None:
    for kept in (service.requests, service.events):
        while not kept.empty():
            kept.get()


@contextmanager
def delegating(
    kind: Kind, folder: Path, conf: str, decide: Decide, **options: Any
) -> Iterator[tuple[ServerProcess, CalloutService]]:
    with (
        running(kind, folder, conf) as process,
        CalloutService(process.url, decide, user="auth", password="pwd", **options) as service,
    ):
        yield process, service


NEW: list[object] = ["natsctl", pytest.param("reference", marks=pytest.mark.exact)]
"""Kinds for what releases of nats-server before natsctl's own version do otherwise."""


@pytest.fixture
def place(shared: Place) -> Place:
    drain(shared.service)
    return shared


@pytest.fixture(params=["natsctl", "reference"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param
