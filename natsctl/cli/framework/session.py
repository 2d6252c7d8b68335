"""Session of one command: its global options, event loop and connection.

A command is synchronous and asks the server through `Session.run`, as often as it needs; the first call connects,
later ones use the same connection, and `close` (called by main) ends it. Between two calls the loop stands still, so
a person may take minutes over a prompt, or Spark over its work: a connection that rested longer than `MAX_REST_S` is
reopened, because the server may have closed it as stale by then, and so is one that is found to be lost after a shorter
rest, as the server may have been restarted. Secrets for the login may come from stdin (`--password-stdin`).

Commands of a batch have a session each, and share the connections of their host.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from natsctl.api.errors import ApiResponseError, UnreachableError, UsageError
from natsctl.cli.framework.globals import GlobalOptions
from natsctl.cli.framework.output import COLOUR, log, note
from natsctl.client.received import Received
from natsctl.hints import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import asyncio

    from natsctl.cli.framework.invocation import CommandHost
    from natsctl.client.audit.recording import RecordedConnection
    from natsctl.client.connection import Connection
    from natsctl.client.manager import Manager
    from natsctl.client.one_shot import PlainConnection
    from natsctl.client.servers import Target


T = TypeVar("T")

MAX_REST_S = 60.0
UNSEEN_REST_S = 1.0
"""Idle time after which a connection is checked before it is used."""


class SessionLink:
    """The connections to one server: plain for single requests, or over nats-py with its event loop."""

    __slots__ = ("embedded", "last_used_s", "manager", "plain", "runner", "working")

    def __init__(self) -> None:
        self.plain: PlainConnection | None = None
        self.runner: asyncio.Runner | None = None
        self.manager: Manager | None = None
        self.embedded: Any = None
        self.last_used_s = 0.0
        self.working: asyncio.Task[Any] | None = None

    @property
    def rest_s(self) -> float:
        return time.monotonic() - self.last_used_s

    def release(self) -> None:
        """Send and end whatever a finished command left on the connection, so that the next command can use it."""
        manager, runner = self.manager, self.runner
        if manager is not None and runner is not None and manager.connection.is_in_use:
            runner.run(manager.connection.release())

    def close_plain(self) -> None:
        plain, self.plain = self.plain, None
        if plain is not None:
            plain.shut()

    def close(self) -> None:
        """End the connections, the loop and, if it was started here, the embedded server."""
        self.close_plain()
        manager, self.manager = self.manager, None
        runner, self.runner = self.runner, None
        try:
            if runner is not None:
                if manager is not None:
                    runner.run(self._end(manager))
                runner.close()
        finally:
            embedded, self.embedded = self.embedded, None
            if embedded is not None:
                embedded.stop()

    async def _end(self, manager: Manager) -> None:
        """End the connection, after work that SIGTERM interrupted has cleaned up."""
        import asyncio

        task, self.working = self.working, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,))
        await manager.connection.close()


class Session:
    """Session of a command: `run` sends its requests, `interactive` is whether the user can be asked.

    With `json` a program reads stderr too, so that the session writes nothing but an error object there.
    """

    __slots__ = (
        "_link",
        "archive",
        "effect",
        "host",
        "json",
        "lasting",
        "options",
        "received",
        "waits",
    )

    def __init__(
        self, options: GlobalOptions = GlobalOptions(), *, json: bool = False, host: CommandHost | None = None
    ) -> None:
        self.options = options
        self.json = json
        self.host = host
        """The command that runs this one in its process, and keeps its connection."""
        self.effect: dict[str, Any] = {}
        """Effect that a command would have, for the end of a dry run."""
        self.archive = ""
        """Audit bundle with documents that replace the servers' answers; "": servers are asked."""
        self.lasting = False
        """Whether all work continues after a lost connection: live views ask repeatedly."""
        self.waits = not options.no_reconnect
        """Whether a command may wait for a server or a leader that is lost."""
        self.received = Received()
        self._link: SessionLink | None = None

    @property
    def interactive(self) -> bool:
        """Return whether questions may be asked.

        Stdin and stderr are terminals, stdin is not used otherwise, and --no-input (NATSCTL_NO_INPUT) is not set.
        """
        if self.host is not None and self.host.unattended:
            return False
        if self.options.no_input or os.environ.get("NATSCTL_NO_INPUT", "").lower() not in ("", "0", "false", "no"):
            return False
        return sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def dry_run(self) -> bool:
        """Return whether nothing may be changed: a request that changes something raises DryRunError unsent."""
        return self.options.dry_run

    def run(self, work: Callable[[Manager], Awaitable[T]], *, lasting: bool = False) -> T:
        """Return the result of `work(manager)`, on a connection to the server that these options name.

        `lasting` work, such as a subscription, goes on when the connection is lost, as soon as it can be opened again.
        Raises UnreachableError, NotAuthorisedError or the errors of the work. Ctrl-C cancels the work and raises
        KeyboardInterrupt.
        """
        import asyncio

        link = self._linked()
        link.close_plain()
        if link.runner is None:
            link.runner = asyncio.Runner()
        results: list[T] = []

        async def worked() -> None:
            # Runner restores the handler of SIGINT; looking that up makes a text of the task and of its result.
            results.append(await self._work(link, work, lasting or self.lasting))

        try:
            link.runner.run(worked())
        finally:
            link.last_used_s = time.monotonic()
        return results[0]

    def ask(self, work: Callable[[Manager], Awaitable[T]], *, changes: bool = False) -> T:
        """Return the result of `work(manager)`: requests, or a publish.

        A plain server is asked without asyncio and nats-py. Other work is left to `run`: it does all of the work again,
        unless that `changes` something and may have done so. Raises as `run`.
        """
        from natsctl.client.one_shot import NeedsMoreError

        options, link = self.options, self._linked()
        if not (link.manager or link.embedded or self.lasting or options.trace or options.tls_insecure):
            _collect_again()
            try:
                return self._ask_plainly(link, work, changes)
            except NeedsMoreError:
                pass  # nats-py knows how to do it, or how to say why not
        return self.run(work)

    def _ask_plainly(self, link: SessionLink, work: Callable[[Manager], Awaitable[T]], changes: bool) -> T:
        """Return the result of `work` on a plain connection."""
        from natsctl.client.one_shot import open_plain

        if link.rest_s > UNSEEN_REST_S:
            link.close_plain()
        if link.plain is None:
            link.plain = open_plain(self.target(), self._name)
        try:
            result = link.plain.ask(work, self.received, dry_run=self.dry_run, changes=changes)
        except ApiResponseError:
            raise
        except BaseException:  # its answer may arrive later
            link.close_plain()
            raise
        finally:
            link.last_used_s = time.monotonic()
        return result

    def _linked(self) -> SessionLink:
        if self._link is None:
            is_shared = self.host is not None and not self.archive
            self._link = self.host.link_to(self.target()) if self.host is not None and is_shared else SessionLink()
        return self._link

    @property
    def _name(self) -> str:
        from natsctl import __version__

        return self.options.connection_name or f"natsctl {__version__}"

    async def _work(self, link: SessionLink, work: Callable[[Manager], Awaitable[T]], lasting: bool) -> T:
        import asyncio

        link.working = asyncio.current_task()
        manager = link.manager
        if manager is not None and not await self._usable(manager, link.rest_s):
            link.manager = None
            await manager.connection.close()
        if link.manager is None:
            link.manager = await self._connect(link)
            _collect_again()
        # A live view that takes the whole terminal has no room for reports until its end.
        if not self.json and (lasting if not self.lasting else not sys.stdout.isatty()):
            self.received.report = log
        connection = link.manager.connection
        connection.received = self.received
        if not self.archive:
            connection.dry_run = self.dry_run
            self._watch(connection)
            # The embedded server is taken over by another command, at the same address.
            connection.patient = lasting and self.waits and connection.target.origin != "embedded"
            connection.reconnects = self.waits and (len(connection.target.urls) > 1 or connection.patient)
        return await work(link.manager)

    async def _usable(self, manager: Manager, rested_s: float) -> bool:
        """Return whether the connection of the last run can be used, by its idle time."""
        if manager.connection.lost:
            return manager.connection.patient
        if self.archive:
            return True
        if UNSEEN_REST_S < rested_s <= MAX_REST_S:
            try:
                await manager.connection.flush()
            except UnreachableError:
                return manager.connection.patient
        return rested_s <= MAX_REST_S

    async def _connect(self, link: SessionLink) -> Manager:
        from natsctl.client.dial import NotListeningError, connect
        from natsctl.client.manager import Manager
        from natsctl.client.servers import TargetKind

        if self.archive:
            return Manager(cast("Connection", self._recorded()))
        target, name = self.target(), self._name
        try:
            connection = await connect(target, name=name)
        except NotListeningError:
            if target.kind is not TargetKind.DEFAULT:
                raise
            connection = await self._connect_embedded(link, target, name)
        return Manager(connection)

    def _watch(self, connection: Connection) -> None:
        """Trace requests for --trace, and report a lost connection, unless a program reads stderr."""
        from natsctl.client.connection import Tracer, ignore_notice

        connection.tracer = Tracer() if self.options.trace else None
        connection.notify = ignore_notice if self.json else log

    def _recorded(self) -> RecordedConnection:
        from pathlib import Path

        from natsctl.client.audit.bundle import Bundle
        from natsctl.client.audit.recording import RecordedConnection

        bundle = Bundle(Path(self.archive))
        try:
            return RecordedConnection(bundle)
        except BaseException:
            bundle.close()
            raise

    async def _connect_embedded(self, link: SessionLink, target: Target, name: str) -> Connection:
        """Return a connection to the embedded server; its owner may be changing between two commands."""
        import asyncio

        from natsctl.client.connection import TAKEOVER_ATTEMPTS, TAKEOVER_RETRY_S
        from natsctl.client.dial import connect

        there = await self._embed(link, target)
        until_s = time.monotonic() + TAKEOVER_ATTEMPTS * TAKEOVER_RETRY_S
        while True:
            try:
                return await connect(there, name=name)
            except UnreachableError:  # the server of another command has just ended
                if time.monotonic() > until_s:
                    raise
            await asyncio.sleep(TAKEOVER_RETRY_S)
            there = there._replace(urls=(link.embedded.url,))

    def target(self) -> Target:
        from natsctl.cli.framework.resolve import did_you_mean
        from natsctl.client.contexts import ContextNotFoundError
        from natsctl.client.servers import resolve

        options = self.options
        try:
            target = resolve(options.settings(), os.environ, options.context, no_context=options.no_context)
        except ContextNotFoundError as failure:
            asked = options.context or os.environ.get("NATS_CONTEXT", "")
            failure.hint = did_you_mean(asked, failure.known) or failure.hint
            raise
        if target.settings.color_scheme:
            os.environ.setdefault(COLOUR, target.settings.color_scheme)
        if target.settings.tls_insecure and not self.json:
            note("warning: the server's certificate is not checked (--tls-insecure)")
        return target

    async def _embed(self, link: SessionLink, target: Target) -> Target:
        """Return the target at the embedded server, started here unless another command runs one on the folder."""
        import asyncio

        from natsctl.client.settings import Settings

        if sys.platform == "win32":
            raise server_missing()
        from natsctl.server.embedded import EmbeddedServer

        say = (lambda text: None) if self.json else note
        embedded = EmbeddedServer(notify=say)
        url = await asyncio.to_thread(embedded.start)
        link.embedded = embedded
        say(f"using the embedded server on {embedded.data_dir}")
        # Its URL has its login; a login for another server would be refused.
        return target._replace(urls=(url,), origin="embedded", settings=Settings())

    def close(self) -> None:
        """End the connections; the host keeps its own for the next command."""
        link, self._link = self._link, None
        if link is None:
            return
        if self.host is not None and not self.archive:
            link.release()
        else:
            link.close()


def _collect_again() -> None:
    """Enable garbage collection if `main` disabled it, without the objects that were imported before.

    Otherwise the garbage of earlier commands in this process would never be collected.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def server_missing() -> UsageError:
    return UsageError(
        "natsctl's server needs Linux or macOS",
        hint="name a server (--server, NATS_URL or a context), or run natsctl in WSL",
    )


MAX_SECRET_BYTES = 64 * 1024
"""Limit of a secret, far above any real one: a wrong file is refused, not sent as a login."""
_SECRETS = ("password", "token")


def given_on_stdin(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options, with the secret from the first line of stdin if a flag names it.

    At a terminal the user is asked, without echo. Raises UsageError if two flags need that line, or it is empty.
    """
    wanted = [name for name in _SECRETS if given.get(f"{name}_stdin")]
    if not wanted:
        return dict(given)
    if len(wanted) > 1:
        raise UsageError("--password-stdin and --token-stdin both read the first line of stdin")
    name = wanted[0]
    if given.get(name):
        raise UsageError(f"--{name} and --{name}-stdin exclude each other")
    if sys.stdin.isatty():
        import getpass

        secret = getpass.getpass(f"{name.capitalize()}: ", sys.stderr)
    else:
        secret = _first_line()
    if not secret:
        raise UsageError(f"--{name}-stdin: no {name} on stdin")
    return {**given, name: secret}


def _first_line() -> str:
    # From the bytes, not from the text layer: the rest is the body of a message and is read later.
    line = sys.stdin.buffer.readline(MAX_SECRET_BYTES + 1)
    if len(line) > MAX_SECRET_BYTES:
        raise UsageError(f"the first line of stdin is longer than {MAX_SECRET_BYTES} bytes")
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as failure:
        raise UsageError(f"the first line of stdin is not UTF-8 text (byte {failure.start})") from failure
