"""`natsctl account report`: the account's own connections and what they move."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "connections, conn, connz, conns",
        "account.report.report:connections",
        answer="cli.server.report:Connection[]",
        examples=("natsctl account report connections --sort in-bytes --top 10",),
    ),
    Verb(
        "statistics, stats, statsz, statz",
        "account.report.report:statistics",
        answer="cli.account.shapes:AccountStatistics[]",
    ),
)
