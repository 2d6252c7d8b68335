"""Command lines that another command, such as `natsctl batch`, runs in its process.

Each command line has a session of its own. Its host keeps the connections, so that the next command line that resolves
to the same server and login uses them: a context that a command line selects, or a server that it names, is honored.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from natsctl.api.errors import UsageError
from natsctl.cli.framework.globals import GLOBAL_FLAGS
from natsctl.cli.framework.output import exit_code_of
from natsctl.cli.framework.session import Session, SessionLink

if TYPE_CHECKING:
    from natsctl.cli.framework.verbs import Verb
    from natsctl.client.servers import Target


MAX_LINKS: Final = 4
"""Servers and logins with a connection that is kept."""
_OF_SERVERS: Final = ("Server", "Login", "Encryption")
"""Headings of the options that choose a server and log in there."""


class CommandOutcome(NamedTuple):
    """The end of a command line: its exit code, the failure that caused it, and its captured stdout."""

    exit_code: int
    failure: BaseException | None
    output: bytes = b""


class CommandHost:
    """A command that runs command lines: the options and connections that they share."""

    def __init__(self, session: Session, *, unattended: str = "") -> None:
        """With a text in `unattended` nobody can be asked, for that reason."""
        self.json = session.json
        """Whether command lines show their answers as JSON if they can."""
        self.unattended = unattended
        self.path = ""
        """Names of the latest command, "" if the command line has no known command."""
        self.answer = ""
        self._options = {name: value for name, value in vars(session.options).items() if not name.endswith("_stdin")}
        self._links: dict[Target, SessionLink] = {}

    def run(self, words: Sequence[str]) -> CommandOutcome:
        """Run a command line, with its output on stdout; a failure is returned unreported."""
        from natsctl.cli.main import dispatch

        self.path = self.answer = ""
        try:
            outcome = CommandOutcome(dispatch(list(words), self), None)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, Exception) as failure:
            return CommandOutcome(exit_code_of(failure), failure)
        return outcome

    def run_captured(self, words: Sequence[str]) -> CommandOutcome:
        before, captured = sys.stdout, io.BytesIO()
        sys.stdout = text = io.TextIOWrapper(captured, encoding="utf-8", errors="backslashreplace", newline="\n")
        try:
            outcome = self.run(words)
            text.flush()
        finally:
            sys.stdout = before
        return outcome._replace(output=captured.getvalue())

    def close(self) -> None:
        while self._links:
            self._links.popitem()[1].close()

    # For command lines that run

    def started(self, rows: Sequence[Verb], words: list[str], *, has_json: bool) -> list[str]:
        """Return the arguments of a command that starts, with -j if the host shows JSON."""
        self.path, self.answer = " ".join(row.name for row in rows), rows[-1].answer
        return ["-j", *words] if has_json and self.json else words

    def missing_options(self, own: dict[str, Any]) -> dict[str, Any]:
        """Return the options of the host that apply to a command line with these options of its own.

        One that names a server or a context gets no login of the host's.
        """
        options = self._options
        if not own.keys().isdisjoint(("server", "context", "no_context")):
            options = {name: value for name, value in options.items() if name not in _server_options()}
        return {name: value for name, value in options.items() if name not in own}

    def link_to(self, target: Target) -> SessionLink:
        """Return the connections to a server, closing the least recently used ones above `MAX_LINKS`."""
        target = target._replace(origin="")
        link = self._links.pop(target, None) or SessionLink()
        self._links[target] = link
        if len(self._links) > MAX_LINKS:
            self._links.pop(next(iter(self._links))).close()
        return link


def _server_options() -> set[str]:
    heading, names = "", set()
    for flag in GLOBAL_FLAGS:
        heading = flag.heading or heading
        if heading in _OF_SERVERS:
            names.add(flag.field)
    return names


class OccupiedStdin(io.TextIOBase):
    """Replacement for a stdin that the host of command lines reads: to read from it is a usage error."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(f"nothing can be read from stdin: {self._reason}", hint="give it as an argument, or as a file")

    read = readline = fileno = __next__ = _refuse

    @property
    def buffer(self) -> NoReturn:
        self._refuse()
