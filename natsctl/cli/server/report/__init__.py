"""`natsctl server report`: tables of servers and what hangs on them."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "accounts, acct",
        "server.report.connections:accounts",
        answer="cli.server.shapes:Account[]",
        examples=("natsctl server report accounts --sort in-msgs",),
    ),
    Verb(
        "connections, conn, connz, conns",
        "server.report.connections:connections",
        answer="cli.server.shapes:Connection[]",
        examples=(
            "natsctl srv report connections --account ORDERS --sort out-bytes --top 10",
            "natsctl srv report connections --state closed --filter 'out_msgs > 1000'",
        ),
    ),
    Verb("leafnodes, leaf, leafz", "server.report.links:leafnodes", answer="cli.server.shapes:Leafnode[]"),
    Verb("routes, route", "server.report.links:routes", answer="cli.server.shapes:Route[]"),
    Verb("gateways, super, gateway", "server.report.links:gateways", answer="cli.server.shapes:Gateway[]"),
    Verb("cpu", "server.report.state:cpu", answer="cli.server.shapes:Statistics[]"),
    Verb("mem", "server.report.state:mem", answer="cli.server.shapes:Statistics[]"),
    Verb("health", "server.report.state:health", answer="cli.server.shapes:ServerAnswer[]"),
    Verb(
        "jetstream, jsz, js",
        "server.report.state:jetstream",
        answer="cli.server.shapes:ServerAnswer[]",
        examples=("natsctl server report jetstream --leaders",),
    ),
    Verb("downgrade", "server.report.state:downgrade", answer="cli.server.shapes:Asset[]"),
)
