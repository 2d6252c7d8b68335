"""`natsctl server`: the included server, and servers as their operators see them."""

from natsctl.cli.framework.verbs import Verb

VERBS = (
    Verb("run", "server.local.run"),
    Verb(
        "list, ls",
        "server.overview.ls",
        answer="cli.server.overview:Statistics[]",
        examples=("natsctl server list 3", "natsctl server list --sort conns -R"),
    ),
    Verb("ping", "server.overview.ping", answer="cli.server.overview:Ping[]"),
    Verb("report, rep", "server.report.VERBS", "Show servers, connections and accounts as tables"),
    Verb(
        "check",
        "server.check.VERBS",
        "Check servers, streams and services for monitoring (exit 0 OK, 1 warning, 2 critical)",
    ),
    Verb(
        "stream-check",
        "server.replicas.stream_check",
        answer="client.system.replicas:StreamReplica[]",
        examples=("natsctl server stream-check --unsynced",),
    ),
    Verb(
        "consumer-check",
        "server.replicas.consumer_check",
        answer="client.system.replicas:ConsumerReplica[]",
        examples=("natsctl server consumer-check --stream ORDERS --unsynced",),
    ),
    Verb("info, i", "server.overview.info", answer="cli.server.overview:ServerAnswer"),
    Verb("request, req", "server.request.VERBS", "Show servers' own answers, one JSON document per line"),
    Verb("config", "server.overview.CONFIG_VERBS", "Manage the configuration of running servers"),
    Verb(
        "cluster, raft, r",
        "server.meta_cluster.VERBS",
        "Manage JetStream's cluster, and balance connections over servers",
    ),
    Verb(
        "account, a, acct", "server.overview.ACCOUNT_VERBS", "Show an account as a server operator sees it, or purge it"
    ),
    Verb(
        "mappings, mapping",
        "server.local.mappings",
        answer="cli.server.local:Mapped[]",
        examples=("natsctl server mappings 'a.*' 'b.{{wildcard(1)}}' a.x",),
    ),
    Verb("passwd, mkpasswd, pass, password", "server.local.passwd", answer="cli.server.local:Hashed"),
    Verb(
        "repair",
        "server.local.repair",
        answer="cli.server.local:Refused[]",
        examples=("natsctl server repair /var/lib/nats", "natsctl server repair /var/lib/nats ORDERS --force"),
    ),
    Verb("watch", "server.watch.VERBS", "Watch servers, accounts and JetStream until Ctrl-C"),
    Verb("graph", "server.overview.graph", examples=("natsctl server graph n1 --jetstream --count 60",)),
)
