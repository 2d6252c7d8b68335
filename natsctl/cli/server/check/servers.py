"""`natsctl server check` of servers and what answers on them: connection, server, meta, request, credential."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Json
from natsctl.cli.server.check.flags import CONNECTION, CREDENTIAL, META, OUT, REQUEST, SERVER
from natsctl.cli.server.check.run import end_check, limits_of, run_check
from natsctl.client.checks.check import Check


@flagged((*CONNECTION, *OUT))
def connection(ctx: typer.Context, given: Given, json: Json = False) -> None:
    """Check that the server accepts connections, and how quickly it answers."""
    from natsctl.client.checks.servers import check_connection

    _import_client()
    begin_s = time.perf_counter()
    run_check(
        ctx,
        given,
        json,
        Check("connections", "Connection"),
        lambda manager, check, limits: check_connection(manager, check, time.perf_counter() - begin_s, limits),
    )


@flagged((*SERVER, *OUT))
def server(ctx: typer.Context, given: Given, json: Json = False) -> None:
    """Check a server: uptime, load, certificates, and what is required of it."""
    from natsctl.client.checks.servers import check_server

    run_check(ctx, given, json, Check("server", given.get("--name", "server")), check_server)


@flagged((*META, *OUT))
def meta(
    ctx: typer.Context,
    given: Given,
    expect: Annotated[
        int, typer.Option("--expect", metavar="N", help="expected number of servers", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Check the group of servers that runs JetStream's cluster."""
    from natsctl.client.checks.servers import check_meta

    check = Check("meta", "JetStream Meta Cluster")
    run_check(
        ctx, given, json, check, lambda manager, check, limits: check_meta(manager, check, {**limits, "expect": expect})
    )


@flagged((*REQUEST, *OUT))
def request(
    ctx: typer.Context,
    given: Given,
    subject: Annotated[
        str, typer.Option("--subject", metavar="SUBJECT", help="the subject to ask", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Check that a service answers a request, how quickly, and with what."""
    from natsctl.client.checks.servers import check_request

    run_check(ctx, given, json, Check("request", subject), check_request)


@flagged((*CREDENTIAL, *OUT))
def credential(
    ctx: typer.Context,
    given: Given,
    file: Annotated[str, typer.Option("--credential", metavar="FILE", help="the credentials", show_default=False)],
    json: Json = False,
) -> None:
    """Check how long a credentials file is still valid; asks no server."""
    from natsctl.api.errors import UsageError
    from natsctl.client.checks.servers import check_credential
    from natsctl.client.secrets import jwt_in, resolve_file

    check = Check("credential", "Credential")
    try:
        check_credential(check, jwt_in(resolve_file(file, "credential"), "credential"), limits_of(given, check.suite))
    except UsageError as failure:
        check.critical.append(str(failure))
    end_check(given, json, check)


def _import_client() -> None:
    """Load what connecting needs: that is no part of the time that it takes."""
    import asyncio  # noqa: F401

    import natsctl.client.dial
    import natsctl.client.manager  # noqa: F401
    from natsctl.client.nats_py import client_class

    client_class()
