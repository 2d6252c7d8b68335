"""`natsctl server report`: tables of servers and what hangs on them."""

from natsctl.cli.verbs import Verb


def _again(shape: str) -> str:
    """An array of these, or with --watch one on each line."""
    return f"cli.server.shapes:{shape}[]|cli.server.shapes:{shape}[]*"


VERBS = (
    Verb(
        "accounts, acct",
        "server.report.connections:accounts",
        answer=f"cli.server.shapes:Account|{_again('Account')}",
        examples=("natsctl server report accounts --sort in-msgs",),
    ),
    Verb(
        "connections, conn, connz, conns",
        "server.report.connections:connections",
        answer=_again("Connection"),
        examples=(
            "natsctl srv report connections --account ORDERS --sort out-bytes --top 10",
            "natsctl srv report connections --state closed --filter 'out_msgs > 1000'",
        ),
    ),
    Verb(
        "leafnodes, leaf, leafz",
        "server.report.links:leafnodes",
        answer=_again("Leafnode"),
    ),
    Verb("routes, route", "server.report.links:routes", answer=_again("Route")),
    Verb(
        "gateways, super, gateway",
        "server.report.links:gateways",
        answer=_again("Gateway"),
    ),
    Verb("cpu", "server.report.state:cpu", answer="cli.server.shapes:Use|cli.server.shapes:Use*"),
    Verb("mem", "server.report.state:mem", answer="cli.server.shapes:Use|cli.server.shapes:Use*"),
    Verb(
        "health",
        "server.report.state:health",
        answer=_again("ServerAnswer"),
    ),
    Verb(
        "jetstream, jsz, js",
        "server.report.state:jetstream",
        answer=_again("ServerAnswer"),
        examples=("natsctl server report jetstream --leaders",),
    ),
    Verb("downgrade", "server.report.state:downgrade", answer="cli.server.shapes:Downgrade"),
)
