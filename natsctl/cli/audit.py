"""Audits of a deployment: `natsctl audit gather`, `analyze`, `checks` and `query`."""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from natsctl import __version__
from natsctl.api.errors import ExitCode, NatsctlError, NotFoundError, UsageError
from natsctl.api.times import parse_time
from natsctl.api.units import SECOND, format_duration, parse_duration, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, Raw
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import safe, stamp
from natsctl.client.atomic_file import atomic_write
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from natsctl.client.audit.analysis import Analysis, CheckResult, Threshold
    from natsctl.client.audit.bundle import Artifact, Bundle
    from natsctl.client.audit.gather import Selection


class GatheredBundle(msgspec.Struct):
    """A written bundle: its contents, and the faults that left gaps in it."""

    file: str
    servers: int
    accounts: int
    streams: int
    documents: int
    profiles: int
    faults: list[str]


class FoundArtifact(msgspec.Struct):
    """A document of a bundle."""

    path: str
    tags: dict[str, str]


AnyDocument = dict[str, Any]
"""A document as a server sent it, printed with --show."""


class Parts(NamedTuple):
    """Parts of a deployment that a bundle has: a bundle of flags for commands."""

    cluster: Annotated[str, Option("--cluster", metavar="CLUSTER", help="only servers of this cluster")] = ""
    server_endpoints: Annotated[
        bool, Option("--server-endpoints/--no-server-endpoints", help="the monitoring data of every server")
    ] = True
    server_profiles: Annotated[
        bool, Option("--server-profiles/--no-server-profiles", help="profiles of every server")
    ] = True
    cpu_profile_duration: Annotated[
        int,
        Option(
            "--cpu-profile-duration",
            metavar="DURATION",
            help="length of CPU profiles, at most 15s",
            read=parse_duration,
        ),
    ] = 5 * SECOND
    account_endpoints: Annotated[
        bool, Option("--account-endpoints/--no-account-endpoints", help="what servers monitor of every account")
    ] = True
    streams: Annotated[bool, Option("--streams/--no-streams", help="the state of every stream")] = True
    consumers: Annotated[bool, Option("--consumers/--no-consumers", help="the state of every consumer")] = True
    details: Annotated[
        bool, Option("--details/--no-details", help="also subscriptions, accounts and configurations")
    ] = True

    @property
    def selection(self) -> Selection:
        from natsctl.client.audit.gather import MAX_CPU_PROFILE_NS, Selection

        if self.server_profiles and not 0 < self.cpu_profile_duration <= MAX_CPU_PROFILE_NS:
            limit = format_duration(MAX_CPU_PROFILE_NS)
            raise UsageError(f"--cpu-profile-duration: expected more than 0s and at most {limit}")
        return Selection(
            cluster=self.cluster,
            server_endpoints=self.server_endpoints,
            server_profiles=self.server_profiles,
            cpu_profile_ns=self.cpu_profile_duration,
            account_endpoints=self.account_endpoints,
            streams=self.streams,
            consumers=self.consumers,
            details=self.details,
        )


def gather(
    session: Session,
    parts: Parts,
    target: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="the bundle [audit-archive-<time>.zip in the temporary folder]"),
    ] = None,
    progress: Annotated[bool, Option("--progress/--no-progress", help="show each step")] = True,
    force: Annotated[bool, Option("--force", "-f", help="replace a file that is no bundle")] = False,
    json: Json = False,
) -> None:
    """Write what all servers, accounts and streams report to one file, for `audit analyze` and `--archive`.

    Needs a user of the system account, and changes nothing on the servers. An existing bundle is replaced.
    """
    from natsctl.client.audit.gather import gather_bundle

    chosen = parts.selection
    path = target or Path(tempfile.gettempdir()) / f"audit-archive-{int(time.time())}.zip"
    _check_target(path, force)
    if session.dry_run:
        raise DryRunError(effect={"file": str(path)})
    say = _note if progress and not json else _silent
    found = session.run(lambda manager: gather_bundle(manager, path, chosen, f"natsctl {__version__}", say))
    if json:
        output.emit_json({"file": str(path), **_plain(found)})
        return
    if found.faults and not progress:
        output.note(f"warning: {plural(len(found.faults), 'gap')}; its log names them: natsctl audit query ARCHIVE")
    output.note(f"{plural(found.documents, 'document')} of {plural(found.servers, 'server')} in {safe(str(path))}")


def _note(text: str) -> None:
    output.note(safe(text))


def _silent(text: str) -> None:
    """Drop a line of a log."""


def _plain(found: Any) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(found)
    return fields


def _check_target(path: Path, force: bool) -> None:
    """Raise UsageError for a file that exists and is no bundle."""
    if force or not path.exists():
        return
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if any(name.startswith("capture/misc/") for name in archive.namelist()):
            return
    raise UsageError(f"{path} exists and is no bundle of an audit", hint="--force replaces it")


_COLOURS: Final = {"PASS": "32", "WARN": "33", "FAIL": "31"}


def analyze(
    session: Session,
    archive: Annotated[Path | None, Argument(metavar="ARCHIVE", help="a bundle that `audit gather` wrote")] = None,
    max_examples: Annotated[
        int, Option("--max-examples", metavar="N", help="faults to show of each check, 0 for all", min=0)
    ] = 5,
    skip: Annotated[
        list[str] | None, Option("--skip", metavar="CODE", help="do not run this check; may be repeated")
    ] = None,
    threshold: Annotated[
        list[str] | None,
        Option("--threshold", metavar="CODE.KEY=VALUE", help="another threshold of a check; may be repeated"),
    ] = None,
    load: Annotated[Path | None, Option("--load", metavar="FILE", help="show a saved report")] = None,
    save: Annotated[Path | None, Option("--save", metavar="FILE", help="write the report to a file")] = None,
    force: Annotated[bool, Option("--force", "-f", help="replace an existing report")] = False,
    markdown: Annotated[bool, Option("--markdown", help="show the report as Markdown")] = False,
    fail_on: Annotated[
        str, Option("--fail-on", metavar="warn|fail", help="end with 1 if a check has this status or a worse one")
    ] = "",
    verbose: Annotated[bool, Option("--verbose", help="write the data that the checks examined to stderr")] = False,
    json: Json = False,
) -> int:
    """Check a bundle for faults and risks, and report them; needs no server."""
    from natsctl.client.audit import analysis
    from natsctl.client.audit.bundle import open_bundle

    if fail_on not in ("", "warn", "fail"):
        raise UsageError(f"--fail-on: expected warn or fail, not {fail_on!r}")
    if load is not None:
        report, source = analysis.load_analysis(load), load
    elif archive is None:
        raise UsageError("a bundle is required: natsctl audit analyze ARCHIVE")
    else:
        if save is not None and save.exists() and not force:
            raise UsageError(f"{save} exists", hint="--force replaces it")
        checks = analysis.with_thresholds(analysis.all_checks(), _pairs(threshold or ()))
        _check_codes(skip or (), [check.check.code for check in checks])
        log = _note if verbose and not json else _silent
        with open_bundle(archive) as bundle:
            for text in bundle.warnings:
                log(text)
            report = analysis.analyze(bundle, checks, skip=skip or (), limit=max_examples, log=log)
        source = archive
    if json:
        output.emit_json(report)
    elif markdown:
        output.emit(safe(analysis.markdown(report, max_examples), block=True))
    else:
        _show(report, source, max_examples)
    if save is not None and load is None:
        _save(save, report, dry_run=session.dry_run)
    worst = max((result.outcome for result in report.checks if result.outcome_string != "SKIP"), default=0)
    return NatsctlError.exit_code if fail_on and worst >= ("", "warn", "fail").index(fail_on) else ExitCode.DONE


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or "." not in name:
            raise UsageError(f"--threshold: expected CODE.KEY=VALUE, not {text!r}")
        pairs[name] = value
    return pairs


def _check_codes(skip: Sequence[str], known: Sequence[str]) -> None:
    for code in skip:
        if code.upper() not in known:
            raise UsageError(f"--skip: no check has the code {code}", hint=did_you_mean(code.upper(), list(known)))


def _save(path: Path, report: Analysis, *, dry_run: bool) -> None:
    if dry_run:
        raise DryRunError(effect={"file": str(path)})
    with as_usage_error(str(path)), atomic_write(path) as file:
        file.write(output.json_text(msgspec.to_builtins(report)).encode() + b"\n")


def _show(report: Analysis, source: Path, limit: int) -> None:
    colour = output.has_color(sys.stdout)
    captured = _moment(report.metadata.capture_timestamp)
    output.emit(f'NATS Audit Report "{safe(str(source))}" captured at {captured}\n')
    for result in report.checks:
        word = result.outcome_string
        mark = f"\x1b[{_COLOURS[word]}m{word}\x1b[0m" if colour and word in _COLOURS else safe(word)
        output.emit(f"[{mark}] [{safe(result.check.code)}] {safe(result.check.description)}")
        _show_examples(result, limit)
    page = Page("Report Summary")
    origin = page.section("Archive Information")
    origin.maybe("Connection Server", safe(report.metadata.connect_url))
    origin.maybe("Server Version", safe(report.metadata.connected_server_version))
    origin.maybe("Creator", safe(report.metadata.version))
    origin.maybe("User", safe(report.metadata.user_name))
    summary = page.section("Summary of Checks")
    for word, number in sorted(report.outcomes.items(), key=lambda one: (one[1], one[0])):
        summary.row(safe(word), f"{number:,}")
    output.emit("")
    output.show_page(page)


def _show_examples(result: CheckResult, limit: int) -> None:
    found = result.examples
    if found.error:
        output.emit(f"Error: {safe(found.error)}")
    if not found.count:
        return
    shown = found.examples[: limit or None]
    for text in shown:
        output.emit(f" - {safe(text)}")
    if found.count > len(shown):
        output.emit(f" - ... and {found.count - len(shown)} more ...")
    output.emit("")


def _moment(text: str) -> str:
    try:
        return stamp(parse_time(text))
    except (ValueError, OverflowError):
        return safe(text)


def checks(json: Json = False) -> None:
    """List the checks of `audit analyze` with their thresholds."""
    from natsctl.client.audit.analysis import all_checks

    found = [check.check for check in all_checks()]
    if json:
        output.emit_json(found)
        return
    rows = [
        (one.suite, one.code, one.description, ", ".join(sorted(map(_threshold, one.configuration.values()))))
        for one in found
    ]
    output.show_table(render_table("Audit Checks", ("Suite", "Code", "Description", "Configuration"), rows))


def _threshold(one: Threshold) -> str:
    default = f"{int(one.default):,}" if one.default == int(one.default) else f"{one.default:,}"
    return f"{one.key} ({default}{'%' if one.unit == '%' else ''})"


def query(
    archive: Annotated[Path, Argument(metavar="ARCHIVE", help="a bundle that `audit gather` wrote")],
    kind: Annotated[str, Option("--type", metavar="TYPE", help="only of this type, such as variables")] = "",
    cluster: Annotated[str, Option("--cluster", metavar="CLUSTER", help="only documents of this cluster")] = "",
    server: Annotated[str, Option("--host", metavar="SERVER", help="only documents of this server")] = "",
    account: Annotated[str, Option("--account", metavar="ACCOUNT", help="only documents of this account")] = "",
    stream: Annotated[str, Option("--stream", metavar="STREAM", help="only documents of this stream")] = "",
    show: Annotated[bool, Option("--show", help="print the documents, a line of JSON each")] = False,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """List the documents of a bundle by their tags, or print them.

    With --raw every artifact is printed unchanged, profiles and logs included.
    """
    from natsctl.client.audit.bundle import open_bundle

    with open_bundle(archive) as bundle:
        found = bundle.find(artifact_type=kind, cluster=cluster, server=server, account=account, stream=stream)
        if not found:
            known = ", ".join(bundle.values("artifact_type"))
            raise NotFoundError(f"{archive} has no such document", hint=f"its types are: {known}")
        if raw:
            for artifact in found:
                output.emit_bytes(bundle.raw(artifact))
        elif show:
            _print(bundle, found)
        elif json:
            output.emit_json([{"path": one.path, "tags": dict(one.tags)} for one in found])
        else:
            _list(found)


def _print(bundle: Bundle, found: Sequence[Artifact]) -> None:
    for artifact in found:
        if artifact.path.endswith(".json"):
            output.emit_json_line(bundle.load(artifact))


def _list(found: Sequence[Artifact]) -> None:
    rows = [
        (
            one.tags.get("artifact_type") or one.tags.get("special", ""),
            one.cluster,
            one.server,
            one.tags.get("account", ""),
            one.tags.get("stream", ""),
            one.path.rpartition("/")[2],
        )
        for one in found
    ]
    columns = ("Type", "Cluster", "Server", "Account", "Stream", "File")
    output.show_table(render_table(plural(len(found), "Document"), columns, rows, least=("File",)))


VERBS = (
    verb(
        "gather, capture, cap", gather, "cli.audit:GatheredBundle", "natsctl --context system audit gather -o audit.zip"
    ),
    verb(
        "analyze",
        analyze,
        "natsctl.client.audit.analysis:Analysis",
        "natsctl audit analyze audit.zip",
        "natsctl audit analyze audit.zip --skip SERVER_007 --fail-on fail",
        "natsctl audit analyze audit.zip --threshold SERVER_003.cpu=70% --markdown",
    ),
    verb("checks, ls", checks, "natsctl.client.audit.analysis:AuditCheck[]"),
    verb(
        "query",
        query,
        "cli.audit:FoundArtifact[]|cli.audit:AnyDocument*",
        "natsctl audit query audit.zip --account ORDERS",
        "natsctl audit query audit.zip --type variables --show",
    ),
)
