"""Services of the micro protocol: `natsctl service`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET

from natsctl.api.errors import UsageError
from natsctl.api.times import is_zero
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Header, Json, Names, Raw
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.messaging.bodies import Body, ForceStdin, SendOn, Templates, Translate, filled, read_headers
from natsctl.cli.messaging.publish import BodySource
from natsctl.cli.messaging.request_reply import AnswerPrinter
from natsctl.cli.render.measurements import fine
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import ago, count, safe, when
from natsctl.client import services
from natsctl.client.message import DryRunError, Message, Planned
from natsctl.client.messaging.messages import Outgoing
from natsctl.client.messaging.request_reply import ReplyLimits, ask
from natsctl.client.services import (
    EchoService,
    Endpoint,
    EndpointNotFoundError,
    EndpointStats,
    Instance,
    ServiceInfo,
    ServiceStats,
    infos,
    pings,
)
from natsctl.client.services import endpoint as find

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


_STATS = ("ID", "Endpoint", "Requests", "Queue Group", "Errors", "Processing Time", "Average Time")
_NUMBERS = ("Requests", "Errors", "Processing Time", "Average Time")


def render_services(found: Sequence[ServiceInfo], service: str) -> Table:
    title = f"{service} Service Instances" if service else "All Services"
    rows = [(one.name, one.version, one.id, one.description) for one in found]
    return render_table(title, ("Name", "Version", "ID", "Description"), rows)


def render_stats(found: Sequence[ServiceStats], service: str) -> Table:
    rows: list[Sequence[str]] = []
    every = [endpoint for instance in found for endpoint in instance.endpoints]
    for instance in found:
        for number, one in enumerate(instance.endpoints):
            rows.append((instance.id if not number else "", one.name, *_figures(one)))
    if len(every) > 1:
        total = EndpointStats(name="", subject="")
        for one in every:
            total.num_requests += one.num_requests
            total.num_errors += one.num_errors
            total.processing_time += one.processing_time
        total.average_processing_time = total.processing_time // max(total.num_requests, 1)
        rows.append(("All", "", *_figures(total)))
    return render_table(f"{service} Service Statistics", _STATS, rows, right=_NUMBERS, least=("Processing Time", "ID"))


def _figures(one: EndpointStats) -> tuple[str, ...]:
    return (
        count(one.num_requests),
        one.queue_group,
        count(one.num_errors),
        fine(one.processing_time),
        fine(one.average_processing_time),
    )


def render_instance(info: ServiceInfo, stats: ServiceStats) -> Page:
    page = Page("Service Information")
    top = page.section()
    top.row("Service", safe(f"{info.name} ({info.id})"))
    top.maybe("Description", safe(info.description))
    top.row("Version", safe(info.version))
    if not is_zero(stats.started):
        top.row("Started", f"{when(stats.started)} ({ago(stats.started, time.time_ns())} ago)")
    top.many("Metadata", [safe(f"{key}: {value}") for key, value in sorted((info.metadata or {}).items())])
    done = {one.name: one for one in stats.endpoints}
    for endpoint in info.endpoints:
        _add_endpoint(page.section(f"Endpoint {safe(endpoint.name)}"), endpoint, done.get(endpoint.name))
    return page


def _add_endpoint(section: Section, endpoint: Endpoint, done: EndpointStats | None) -> None:
    section.row("Subject", safe(endpoint.subject))
    section.maybe("Queue Group", safe(endpoint.queue_group))
    section.many("Metadata", [safe(f"{key}: {value}") for key, value in sorted((endpoint.metadata or {}).items())])
    if done is None:
        return
    section.row("Requests", count(done.num_requests))
    section.row("Processing Time", f"{fine(done.processing_time)} (average {fine(done.average_processing_time)})")
    section.row("Errors", count(done.num_errors))
    section.maybe("Last Error", safe(done.last_error))
    if done.data is not UNSET:
        section.row("Data", safe(json.dumps(done.data, ensure_ascii=False)))


def serve(
    session: Session,
    name: Annotated[str, Argument(metavar="NAME", help="the name of the service")],
    header: Header = None,
    json: Json = False,
) -> None:
    """Run a service that echoes requests on NAME.echo, until Ctrl-C; -H adds headers to its answers."""
    service = EchoService(name, read_headers(header))
    if session.dry_run:
        raise DryRunError(effect={"serves": f"{name}.echo"})

    def listening() -> None:
        if not json:
            output.log(f"serving {safe(service.info.name)} ({service.info.id}) on {safe(name)}.echo")

    def handled(message: Message) -> None:
        if json:
            output.emit_json_line({"subject": message.subject, "bytes": len(message.body), "reply": message.reply})
        else:
            output.log(f'Request of {plural(len(message.body), "byte")} on "{safe(message.subject)}"')

    async def work(manager: Manager) -> None:
        await service.run(manager.connection, listening, handled)

    session.run(work, lasting=True)


MaybeService = Annotated[str, Argument(metavar="SERVICE", help="the service")]
Service = Annotated[str, Argument(metavar="SERVICE", help="the service")]
InstanceName = Annotated[str, Argument(metavar="ID", help="only this instance")]


def ls(session: Session, service: MaybeService = "", names: Names = False, json: Json = False) -> None:
    """List services, or the instances of one."""

    found = session.run(lambda manager: infos(manager.connection, service))
    distinct = list(dict.fromkeys(said.value.name for said in found))
    if names:
        output.emit_json(distinct) if json else output.emit_names(distinct)
    elif json:
        output.emit_json([said.raw for said in found])
    else:
        output.show_table(render_services([said.value for said in found], service))


def info(
    session: Session,
    service: Service,
    instance: InstanceName = "",
    endpoint: Annotated[
        str, Option("--endpoint", "-e", metavar="REGEX", help="only endpoints with names that match")
    ] = "",
    json: Json = False,
) -> None:
    """Show the instances of a service, their endpoints and statistics.

    With -j `info` and `stats` are those of the first instance, and `instances` has every instance.
    """
    from natsctl.client.services import infos, stats

    shown = _matcher(endpoint)
    found = session.run(lambda manager: infos(manager.connection, service, instance))
    done = {said.value.id: said for said in session.run(lambda manager: stats(manager.connection, service, instance))}
    both = [(said, done[said.value.id]) for said in found if said.value.id in done]
    for one, two in both:
        for raw in (one.raw, two.raw):
            raw["endpoints"] = [end for end in raw.get("endpoints") or () if shown.search(str(end.get("name")))]
        one.value.endpoints = [end for end in one.value.endpoints if shown.search(end.name)]
    if json:
        instances = [{"info": one.raw, "stats": two.raw} for one, two in both]
        first = instances[0] if instances else {"info": None, "stats": None}
        output.emit_json({**first, "instances": instances})
        return
    for number, (one, two) in enumerate(both):
        if number:
            output.emit("")
        output.show_page(render_instance(one.value, two.value))


def _matcher(words: str) -> re.Pattern[str]:
    try:
        return re.compile(words)
    except re.error as failure:
        raise UsageError(f"--endpoint: {words!r} is not a regular expression: {failure}") from failure


def stats(session: Session, service: Service, instance: InstanceName = "", json: Json = False) -> None:
    """Show the number of requests to each endpoint of a service, and how long they took."""

    found = session.run(lambda manager: services.stats(manager.connection, service, instance))
    if json:
        output.emit_json([said.raw for said in found])
    else:
        output.show_table(render_stats([said.value for said in found], service))


def ping(session: Session, service: MaybeService = "", json: Json = False) -> None:
    """Show which instances answer, the quickest first."""

    found = session.run(lambda manager: pings(manager.connection, service))
    if json:
        output.emit_json([{**said.raw, "rtt": said.rtt_ns} for said in found])
        return
    rows = [(said.value.name, said.value.id, fine(said.rtt_ns)) for said in found]
    output.show_table(render_table("Answers", ("Name", "ID", "RTT"), rows, right=("RTT",)))


def request(
    session: Session,
    service: Service,
    endpoint: Annotated[str, Argument(metavar="ENDPOINT", help="the name of the endpoint")],
    body: Body = None,
    header: Header = None,
    count: Annotated[int, Option("--count", metavar="N", help="how many requests", min=1)] = 1,
    translate: Translate = "",
    templates: Templates = True,
    force_stdin: ForceStdin = False,
    send_on: SendOn = "eof",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Send a request to an endpoint of a service and show the answer; an error of the service is a failure (exit 1)."""
    show = AnswerPrinter(raw, json, count == 1 and send_on == "eof", translate)
    headers = read_headers(header)

    async def work(manager: Manager) -> None:
        connection = manager.connection
        subject = (await find(connection, service, endpoint)).subject
        for payload in BodySource(body, force_stdin, send_on).all():
            for message in filled(Outgoing(subject, payload, headers), count, templates):
                if connection.dry_run:
                    _preview(message, count)
                show.sending(message.subject)
                await show.answers(ask(connection, message, ReplyLimits()), subject)

    try:
        session.run(work)
    except EndpointNotFoundError as failure:
        failure.hint = did_you_mean(endpoint, failure.known) or failure.hint
        raise


def _preview(message: Outgoing, count: int) -> None:
    planned = Planned(message.subject, message.body, message.headers or None)
    raise DryRunError(planned, effect={"requests": count})


class Handled(msgspec.Struct):
    """A request that the service of `natsctl service serve` has answered."""

    subject: str
    bytes: int
    reply: str


class Answered(msgspec.Struct, omit_defaults=True):
    """An answer to a request, and the nanoseconds until it came; `data` in base64, `text` if it is UTF-8."""

    subject: str
    data: str
    received: str
    rtt: int
    reply: str = ""
    headers: dict[str, list[str]] = {}
    text: str = ""
    status: int = 0
    description: str = ""


class Instances(msgspec.Struct):
    """All instances of a service; `info` and `stats` are of the first, null if no one answers."""

    info: dict[str, Any] | None
    stats: dict[str, Any] | None
    instances: list[Instance]


VERBS = (
    verb("ls, list, l", ls, "client.services:ServiceInfo[]"),
    verb("info, i", info, "service:Instances", "natsctl service info orders --endpoint '^new'"),
    verb("stats", stats, "client.services:ServiceStats[]"),
    verb("ping", ping, "client.services:Pinged[]"),
    verb("request, req", request, "cli.service:Answered", "natsctl service request orders new @order.json"),
    verb("serve", serve, "cli.service:Handled*", "natsctl service serve demo"),
)
