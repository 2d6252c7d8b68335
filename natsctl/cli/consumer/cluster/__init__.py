"""`natsctl consumer cluster`: who leads the consumers of a cluster."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "step-down, stepdown, sd, elect, down, d",
        "consumer.cluster.leader:step_down",
        answer="ConsumerInfoAnswer",
        examples=("natsctl con cluster step-down ORDERS NEW --preferred n2 -f",),
    ),
    Verb(
        "balance",
        "consumer.cluster.leader:balance",
        answer="cli.consumer.shapes:Balance",
        examples=("natsctl con cluster balance ORDERS --dry-run",),
    ),
)
