"""How every check is run, written, and ended.

`server check` alone departs from the table of exit codes: monitoring asks for 0 OK, 1 warning, 2 critical, 3 unknown.
In Prometheus' format the status is one of the metrics, and the exit code says only whether they could be written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.cli import output
from natsctl.cli.options import session_of
from natsctl.cli.server.check.flags import DEFAULTS, OUT

if TYPE_CHECKING:
    from natsctl.cli.flags import Flag, Given
    from natsctl.client.checks.check import Check
    from natsctl.client.manager import Manager

Work = Callable[["Manager", "Check", dict[str, Any]], Awaitable[None]]


def run_check(ctx: typer.Context, given: Given, json: bool, check: Check, work: Work) -> None:
    """Do the work and end with the check's status; what goes wrong on the way is critical, but not a bad flag."""
    session = session_of(ctx)
    limits = limits_of(given, check.suite)
    try:
        session.run(lambda manager: work(manager, check, limits))
    except UsageError:
        raise
    except NatsctlError as failure:
        check.critical.append(_told(failure))
    end_check(given, json, check)


def _told(failure: NatsctlError) -> str:
    code = getattr(getattr(failure, "error", None), "err_code", 0)
    return f"{failure} ({code})" if code else str(failure)


def limits_of(given: Given, suite: str) -> dict[str, Any]:
    """The thresholds that were given, over those that hold otherwise."""
    out = {flag.name for flag in OUT}
    return {
        **DEFAULTS.get(suite, {}),
        **{name.removeprefix("--"): value for name, value in given.items() if name not in out},
    }


def readers(table: tuple[Flag, ...]) -> dict[str, Callable[[str], Any]]:
    """How metadata that set a threshold are read."""
    return {flag.name.removeprefix("--"): _true if flag.kind.switch else flag.read for flag in table}


def _true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes", "t")


def end_check(given: Given, json: bool, check: Check) -> None:
    """Write the result where it was asked for and exit with its status."""
    chosen = "json" if json else given.get("--format", "nagios")
    if outfile := given.get("--outfile"):
        _replace(Path(outfile), _text(chosen, check, given, to_file=True) + "\n")
    elif chosen == "text":
        from natsctl.cli.render.servers import tables
        from natsctl.cli.screen import console

        for part in tables(check):
            console().print(part)
    else:
        output.emit(_text(chosen, check, given))
    raise typer.Exit(0 if chosen == "prometheus" else int(check.status))


def _text(chosen: str, check: Check, given: Given, to_file: bool = False) -> str:
    from natsctl.cli.render.servers import document, nagios, prometheus, tables

    if chosen == "json":
        import json

        return json.dumps(document(check), indent=2)
    if chosen == "prometheus":
        return prometheus(check, given.get("--namespace", "nats_server_check"))
    if chosen == "text" and to_file:
        from io import StringIO

        from rich.console import Console

        held = StringIO()
        Console(file=held, width=120, no_color=True, markup=False, highlight=False).print(*tables(check), sep="\n")
        return held.getvalue().rstrip()
    return nagios(check)


def _replace(path: Path, text: str) -> None:
    """Write a file in one step: who reads it meanwhile sees the old or the new one whole. Raises UsageError."""
    from natsctl.client.whole_file import whole_file

    try:
        with whole_file(path, 0o644) as file:
            file.write(text.encode())
    except OSError as failure:
        raise UsageError(f"--outfile: {path}: {failure.strerror}") from failure
