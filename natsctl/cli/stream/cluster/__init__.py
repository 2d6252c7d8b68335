"""`natsctl stream cluster`: who leads the streams of a cluster, and which servers they are on."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "step-down, stepdown, sd, elect, down, d",
        "stream.cluster.leader:step_down",
        answer="StreamInfoAnswer",
        examples=("natsctl stream cluster step-down ORDERS --preferred n2",),
    ),
    Verb(
        "balance",
        "stream.cluster.leader:balance",
        answer="cli.stream.shapes:Balance",
        examples=("natsctl stream cluster balance --subject 'ORDERS.>' --dry-run",),
    ),
    Verb(
        "peer-remove, pr",
        "stream.cluster.peer:peer_remove",
        answer="StreamRemovePeerAnswer",
        examples=("natsctl stream cluster peer-remove ORDERS n3 -f",),
    ),
)
