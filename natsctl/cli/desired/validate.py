"""`natsctl validate`: what documents hold, and all that is wrong with them; no server is asked."""

from __future__ import annotations

import os

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output, screen
from natsctl.cli.desired import sources
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json


@flagged()
def validate(
    named: sources.Named,
    json: Json = False,
) -> int:
    """Check documents without a server: list their contents, and everything that a server would refuse.

    Ends with 2 where anything is wrong. They are not compared with a server: natsctl plan does that.
    """
    from natsctl.cli.desired.shapes import Validated
    from natsctl.cli.render.plans import render_validated
    from natsctl.plan.documents import read_documents

    documents, faults = read_documents(named.all, os.environ, owner=named.owner, variables=named.values)
    verdict = Validated.of(documents, faults)
    if json:
        import msgspec

        output.emit_json(msgspec.to_builtins(verdict))
    else:
        sources.show_notes(documents)
        output.emit(render_validated(verdict, screen.width()))
    return ExitCode.DONE if verdict.valid else ExitCode.USAGE
