"""`natsctl server`: the included server, and servers as their operators see them."""

from typing import TYPE_CHECKING

from natsctl.cli.framework.verbs import Verb, lazy_modules

if TYPE_CHECKING:
    from natsctl.cli.server import check, local, meta_cluster, overview, replicas, report, request, watch
else:
    check, local, meta_cluster, overview, replicas, report, request, watch = lazy_modules(
        "natsctl.cli.server", "check local meta_cluster overview replicas report request watch"
    )

VERBS = (
    Verb("run", local.run),
    Verb(
        "list, ls",
        overview.ls,
        answer="cli.server.overview:Statistics[]",
        examples=("natsctl server list 3", "natsctl server list --sort conns -R"),
    ),
    Verb("ping", overview.ping, answer="cli.server.overview:Ping[]"),
    Verb("report, rep", report.VERBS, "Show servers, connections and accounts as tables"),
    Verb("check", check.VERBS, "Check servers, streams and services for monitoring (exit 0 OK, 1 warning, 2 critical)"),
    Verb(
        "stream-check",
        replicas.stream_check,
        answer="client.system.replicas:StreamReplica[]",
        examples=("natsctl server stream-check --unsynced",),
    ),
    Verb(
        "consumer-check",
        replicas.consumer_check,
        answer="client.system.replicas:ConsumerReplica[]",
        examples=("natsctl server consumer-check --stream ORDERS --unsynced",),
    ),
    Verb("info, i", overview.info, answer="cli.server.overview:ServerAnswer"),
    Verb("request, req", request.VERBS, "Show servers' own answers, one JSON document per line"),
    Verb("config", overview.CONFIG_VERBS, "Manage the configuration of running servers"),
    Verb("cluster, raft, r", meta_cluster.VERBS, "Manage JetStream's cluster, and balance connections over servers"),
    Verb("account, a, acct", overview.ACCOUNT_VERBS, "Show an account as a server operator sees it, or purge it"),
    Verb(
        "mappings, mapping",
        local.mappings,
        answer="cli.server.local:Mapped[]",
        examples=("natsctl server mappings 'a.*' 'b.{{wildcard(1)}}' a.x",),
    ),
    Verb("passwd, mkpasswd, pass, password", local.passwd, answer="cli.server.local:Hashed"),
    Verb(
        "repair",
        local.repair,
        answer="cli.server.local:Refused[]",
        examples=("natsctl server repair /var/lib/nats", "natsctl server repair /var/lib/nats ORDERS --force"),
    ),
    Verb("watch", watch.VERBS, "Watch servers, accounts and JetStream until Ctrl-C"),
    Verb("graph", overview.graph, examples=("natsctl server graph n1 --jetstream --count 60",)),
)
