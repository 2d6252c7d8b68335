"""`natsctl account tls`: the certificates of the server that is connected to."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.options import Json, session_of
from natsctl.cli.render.text import duration, safe


def tls(
    ctx: typer.Context,
    expire_warn: Annotated[
        str, typer.Option("--expire-warn", metavar="DURATION", help="warn when less time is left; 0 for never")
    ] = "1w",
    ocsp: Annotated[bool, typer.Option("--ocsp", help="also show what the certificates say about OCSP")] = False,
    pem: Annotated[bool, typer.Option("--pem/--no-pem", help="also show the certificates themselves")] = True,
    json: Json = False,
) -> None:
    """Show the certificates that the server presented, its own first, and warn of those that expire soon."""
    import msgspec

    from natsctl.api.units import parse_duration
    from natsctl.client.certificates import chain

    try:
        least_ns = parse_duration(expire_warn)
    except ValueError as failure:
        raise UsageError(f"--expire-warn: {failure}") from failure
    found = session_of(ctx).run(chain)
    if json:
        output.emit_json([msgspec.to_builtins(one if pem else msgspec.structs.replace(one, pem="")) for one in found])
    else:
        from natsctl.cli.render.accounts import render_chain
        from natsctl.cli.screen import show_page

        show_page(render_chain(found, ocsp))
        if pem:
            output.emit("\n" + "\n".join(one.pem.rstrip() for one in found))
        if ocsp:
            output.note("stapled OCSP responses are not checked: Python's TLS does not expose them")
    for one in found:
        if least_ns > 0 and one.expires_in_ns < least_ns:
            left = one.expires_in_ns
            when = f"expires in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
            output.note(f"warning: the certificate of {safe(one.subject)} {when}")
