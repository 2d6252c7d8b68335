"""`natsctl server`: the included server, and servers as their operators see them."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb("run", "server.run:run"),
    Verb(
        "list, ls",
        "server.ls:ls",
        answer="cli.server.shapes:Statistics[]",
        examples=("natsctl server list 3", "natsctl server list --sort conns -R"),
    ),
    Verb("ping", "server.ls:ping", answer="cli.server.shapes:Ping[]"),
    Verb("report, rep", "server.report", "Show servers and what hangs on them as tables"),
)
