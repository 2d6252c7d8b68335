"""`natsctl server cluster`: who leads JetStream's cluster, who belongs to it, and how connections are spread."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "step-down, stepdown, sd, elect, down, d",
        "server.cluster.meta:step_down",
        answer="cli.server.shapes:Election",
        examples=("natsctl server cluster step-down --host n2",),
    ),
    Verb("peer-remove, rm, pr", "server.cluster.meta:peer_remove", answer="cli.server.shapes:Success"),
    Verb(
        "rescue",
        "server.cluster.meta:rescue",
        answer="cli.server.shapes:Rescue",
        examples=("natsctl server cluster rescue", "natsctl server cluster rescue --quorum 1"),
    ),
    Verb(
        "balance",
        "server.cluster.balance:balance",
        answer="cli.server.shapes:Balance",
        examples=("natsctl server cluster balance 10s --idle 1m",),
    ),
)
