"""`/healthz`: the health of the server, of JetStream and of single streams and consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from natsctl.api.catalogue import error
from natsctl.api.codec import go_quote
from natsctl.api.errors import ErrCode
from natsctl.server.monitor.document import present
from natsctl.server.monitor.query import EndpointOptions

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.engine import Engine
    from natsctl.server.instance import ServerInstance

UNAVAILABLE: Final = 503
NOT_FOUND: Final = 404
BAD_REQUEST: Final = 400
STALL_S: Final = 10.0
"""Min delay of the event loop that makes the server unhealthy."""


class HealthzOptions(EndpointOptions, kw_only=True, rename="kebab"):
    """Options of `healthz`; keys are written with dashes."""

    js_enabled: bool = False
    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class HealthProblem(NamedTuple):
    kind: str
    text: str
    code: int = UNAVAILABLE
    account: str = ""
    stream: str = ""
    consumer: str = ""

    def detail(self) -> dict[str, str]:
        named = {"account": self.account, "stream": self.stream, "consumer": self.consumer}
        return {"type": self.kind, **present(named), "error": self.text}


def healthz(server: ServerInstance, options: HealthzOptions) -> dict[str, Any]:
    """Return the state of health with its `status_code`; HTTP sends that as the status instead."""
    found = health_problems(server, options)
    first = next(found, None)
    if first is None:
        return {"status": "ok", "status_code": 200}
    if options.details:
        every = [first.detail(), *(problem.detail() for problem in found)]
        return {"status": "error", "status_code": first.code, "errors": every}
    status = "error" if first.code == BAD_REQUEST else "unavailable"
    return {"status": status, "status_code": first.code, "error": first.text}


def health_problems(server: ServerInstance, options: HealthzOptions) -> Iterator[HealthProblem]:
    for wanted, missing in (("account", "stream"), ("stream", "consumer")):
        if getattr(options, missing) and not getattr(options, wanted):
            text = f"{go_quote(wanted)} must not be empty when checking {missing} health"
            yield HealthProblem("BAD_REQUEST", text, BAD_REQUEST)
            return
    if options.js_server_only or not server.options.jetstream:
        return
    engine = server.engine
    if engine is None:
        yield HealthProblem("JETSTREAM", error(ErrCode.NOT_ENABLED).description)
        return
    if not (options.js_enabled or options.js_enabled_only):
        missing_asset = _missing(engine, options)
        if missing_asset is not None:
            yield missing_asset
            return
        yield from _faults(engine, options)
        if not options.account and server.lag_s >= STALL_S:
            yield HealthProblem("SERVER", f"The event loop stood still for {server.lag_s:.1f} s within the last minute")


def _missing(engine: Engine, options: HealthzOptions) -> HealthProblem | None:
    if not options.account:
        return None
    account, stream, consumer = (go_quote(text) for text in (options.account, options.stream, options.consumer))
    js = engine.accounts.get(options.account)
    if js is None:
        return HealthProblem("ACCOUNT", f"JetStream account {account} not found", NOT_FOUND, options.account)
    if not options.stream or options.stream in js.offline.reasons():
        return None
    found = js.streams.get(options.stream)
    if found is None:
        text = f"JetStream stream {stream} not found on account {account}"
        return HealthProblem("STREAM", text, NOT_FOUND, options.account, options.stream)
    if options.consumer and options.consumer not in found.consumers:
        text = f"JetStream consumer {consumer} not found for stream {stream} on account {account}"
        return HealthProblem("CONSUMER", text, NOT_FOUND, options.account, options.stream, options.consumer)
    return None


def _faults(engine: Engine, options: HealthzOptions) -> Iterator[HealthProblem]:
    """Yield problems of streams that are stored and not served, or that the disk has failed; then others."""
    reported = False
    for name, js in sorted(engine.accounts.items()):
        if options.account in ("", name):
            for problem in _account_faults(js, options.stream):
                reported = True
                yield problem
    if not reported and not options.account and not engine.store.healthy:
        for text in engine.store.faults:
            yield HealthProblem("JETSTREAM", text)


def _account_faults(js: JetStreamAccount, only: str) -> Iterator[HealthProblem]:
    for stream in js.offline.reasons():
        if only in ("", stream):
            text = f"JetStream stream '{js.name} > {stream}' could not be recovered"
            yield HealthProblem("STREAM", text, account=js.name, stream=stream)
    for stream, served in js.streams.items():
        if only in ("", stream) and (fault := served.write_error):
            text = f"JetStream stream '{js.name} > {stream}' write error: {fault}"
            yield HealthProblem("STREAM", text, account=js.name, stream=stream)
