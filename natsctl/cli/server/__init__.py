"""`natsctl server`: the included server, and servers as their operators see them."""

from natsctl.cli.framework.verbs import Verb, verb

VERBS = (
    Verb("run", "server.local.run"),
    verb(
        "list, ls",
        "server.overview.ls",
        "cli.server.overview:Statistics[]",
        "natsctl server list 3",
        "natsctl server list --sort conns -R",
    ),
    verb("ping", "server.overview.ping", "cli.server.overview:Ping[]"),
    Verb("report, rep", "server.report.VERBS", "Show servers, connections and accounts as tables"),
    Verb(
        "check",
        "server.check.VERBS",
        "Check servers, streams and services for monitoring (exit 0 OK, 1 warning, 2 critical)",
    ),
    verb(
        "stream-check",
        "server.replicas.stream_check",
        "client.system.replicas:StreamReplica[]",
        "natsctl server stream-check --unsynced",
    ),
    verb(
        "consumer-check",
        "server.replicas.consumer_check",
        "client.system.replicas:ConsumerReplica[]",
        "natsctl server consumer-check --stream ORDERS --unsynced",
    ),
    verb("info, i", "server.overview.info", "cli.server.overview:ServerAnswer"),
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
    verb(
        "mappings, mapping",
        "server.local.mappings",
        "cli.server.local:Mapped[]",
        "natsctl server mappings 'a.*' 'b.{{wildcard(1)}}' a.x",
    ),
    verb("passwd, mkpasswd, pass, password", "server.local.passwd", "cli.server.local:Hashed"),
    verb(
        "repair",
        "server.local.repair",
        "cli.server.local:Refused[]",
        "natsctl server repair /var/lib/nats",
        "natsctl server repair /var/lib/nats ORDERS --force",
    ),
    Verb("watch", "server.watch.VERBS", "Watch servers, accounts and JetStream until Ctrl-C"),
    verb("graph", "server.overview.graph", "", "natsctl server graph n1 --jetstream --count 60"),
)
