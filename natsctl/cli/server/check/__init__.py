"""`natsctl server check`: what monitoring asks, with exit codes 0 OK, 1 warning, 2 critical, 3 unknown."""

from natsctl.cli.verbs import Verb

_ANSWER = "cli.server.shapes:CheckResult"

VERBS = (
    Verb(
        "connection, conn",
        "server.check.servers:connection",
        answer=_ANSWER,
        examples=("natsctl server check connection --rtt-warn 100ms --rtt-critical 500ms",),
    ),
    Verb(
        "stream",
        "server.check.assets:stream",
        answer=_ANSWER,
        examples=("natsctl server check stream --stream ORDERS --peer-expect 3 --msgs-critical 10",),
    ),
    Verb(
        "consumer",
        "server.check.assets:consumer",
        answer=_ANSWER,
        examples=("natsctl srv check consumer --stream S --consumer C --unprocessed-critical 1000",),
    ),
    Verb(
        "message, msg",
        "server.check.assets:message",
        answer=_ANSWER,
        examples=("natsctl srv check message --stream ORDERS --subject ORDERS.new --age-warn 1h",),
    ),
    Verb(
        "meta, raft",
        "server.check.servers:meta",
        answer=_ANSWER,
        examples=("natsctl server check meta --expect 3 --lag-critical 100 --seen-critical 10s",),
    ),
    Verb(
        "request, req",
        "server.check.servers:request",
        answer=_ANSWER,
        examples=("natsctl server check request --subject orders.status --match-payload ready",),
    ),
    Verb("jetstream, js", "server.check.assets:jetstream", answer=_ANSWER),
    Verb(
        "server",
        "server.check.servers:server",
        answer=_ANSWER,
        examples=("natsctl srv check server --js-required --format prometheus --outfile nats.prom",),
    ),
    Verb("kv", "server.check.assets:kv", answer=_ANSWER),
    Verb("credential", "server.check.servers:credential", answer=_ANSWER),
)
