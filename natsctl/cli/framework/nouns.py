"""The nouns: the first arguments of a command line, by the headings of root help."""

from __future__ import annotations

from natsctl.cli.framework.verbs import Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEADINGS: Mapping[str, tuple[Verb, ...]] = {
    "Streams and their contents": (
        Verb("stream, str, st, s, ms", "stream.VERBS", "Create, list, show, edit, purge, back up and remove streams"),
        Verb("consumer, con, obs, c", "consumer.VERBS", "Create, list, show, read from and remove consumers"),
        Verb("kv", "kv.VERBS", "Create key-value buckets, read, write and watch their keys"),
        Verb("object, obj", "object.VERBS", "Create object buckets, store files in them and fetch them"),
        Verb("counter, ctr", "counter.VERBS", "Read and change counters that are kept in streams"),
        Verb("explain, why", "explain.VERBS", "Explain why messages are missing"),
        Verb(
            "browse",
            "browse.command.browse",
            "Look around on a full screen",
            examples=("natsctl browse", "natsctl browse --context prod --read-only"),
        ),
        Verb("deadletter, dlq", "deadletter.VERBS", "Keep, show, replay and discard messages that failed"),
    ),
    "Messages": (
        Verb(
            "publish, pub",
            "messaging.publish.publish",
            "Publish messages",
            answer="cli.answer_documents:Published|PubAck*",
            examples=(
                'natsctl publish ORDERS.new "hello" --wait',
                "cat order.json | natsctl publish ORDERS.new",
            ),
        ),
        Verb(
            "subscribe, sub",
            "messaging.subscribe.subscribe",
            "Show messages as they arrive",
            answer="cli.answer_documents:Message*|cli.answer_documents:Counted[]",
            examples=('natsctl subscribe "ORDERS.*" --count 3',),
        ),
        Verb(
            "request, req",
            "messaging.request_reply.request",
            "Send a request and show its answers",
            answer="cli.answer_documents:Response*",
            examples=("natsctl request ORDERS.new hello",),
        ),
        Verb(
            "reply",
            "messaging.request_reply.reply",
            "Answer requests with a text, an echo or a program",
            answer="cli.answer_documents:Answered*",
            examples=(
                "natsctl reply time.now --command date",
                "natsctl reply 'weather.>' --command \"curl -s wttr.in/{{1}}?format=3\"",
            ),
        ),
        Verb("service, micro", "service.VERBS", "List, query and run services of the micro protocol"),
        Verb(
            "trace",
            "messaging.request_reply.trace",
            "Show which servers, clients and streams a message reaches",
            answer="cli.answer_documents:Traced",
            examples=("natsctl trace ORDERS.new",),
        ),
    ),
    "Desired state": (
        Verb(
            "apply",
            "desired.apply.apply",
            "Create and change streams, consumers and buckets as documents describe",
            answer="desired.apply:Applied",
            examples=(
                "natsctl apply -f orders.yaml",
                "natsctl apply -f deploy/ --prune --owner shop",
                "natsctl apply --plan changes.json",
            ),
        ),
        Verb(
            "plan",
            "desired.plan.plan",
            "Show what apply would change",
            answer="natsctl.desired.plan:SavedPlan",
            examples=("natsctl plan -f orders.yaml", "natsctl plan -f deploy/ --prune --out changes.json"),
        ),
        Verb(
            "diff",
            "desired.plan.diff",
            "Show how streams, consumers and buckets differ from documents",
            answer="desired.plan:Drift",
            examples=("natsctl diff -f orders.yaml",),
        ),
        Verb(
            "destroy",
            "desired.apply.destroy",
            "Remove the streams, consumers and buckets that documents describe",
            answer="desired.apply:Applied",
            examples=("natsctl destroy -f orders.yaml --yes",),
        ),
        Verb(
            "validate",
            "desired.sources.validate",
            "Check documents of streams, consumers and buckets without a server",
            answer="desired.sources:Validated",
            examples=("natsctl validate -f orders.yaml", "natsctl validate -f deploy/ --var ENV=staging -j"),
        ),
        Verb(
            "export",
            "desired.export.export",
            "Write the account, or some of its streams, as documents",
            answer="natsctl.desired.export:PlainDocument|natsctl.desired.export:TypedDocument[]"
            "|natsctl.desired.documents.files:FilesWritten",
            examples=(
                "natsctl export > account.yaml",
                "natsctl export 'ORDERS*' --output streams/ --force",
            ),
        ),
        Verb("convert", "desired.convert.VERBS", "Convert Terraform or Kubernetes configurations to documents"),
    ),
    "Streams on Spark": (
        Verb(
            "sql",
            "sql.sql",
            "Query streams, buckets and backups with SQL",
            answer="cli.sql:Rows|cli.sql:Explained",
            examples=(
                'natsctl sql "select subject, count(*) from ORDERS group by 1"',
                "natsctl sql 'select string(value) from ORDERS where seq > 100' --limit 9 -j",
                "natsctl sql @report.sql --csv",
            ),
        ),
        Verb("pipeline", "pipeline.VERBS", "Keep tables and streams up to date with Spark's Declarative Pipelines"),
        Verb("spark", "spark.VERBS", "Check that Spark can run here, and make it start faster"),
    ),
    "Backups and moves": (
        Verb(
            "backup",
            "backup.VERBS",
            "Back up every stream's configuration, with --data also messages, and look into backups",
            answer="cli.backup.accounts:ConfigurationBackup",
            examples=("natsctl backup ./saved --data",),
            default="backup.accounts.backup",
        ),
        Verb(
            "restore",
            "backup.accounts.restore",
            "Restore a configuration backup",
            answer="cli.backup.accounts:ConfigurationBackup",
            examples=("natsctl restore ./saved --update-streams",),
        ),
        Verb(
            "migrate",
            "migrate.migrate",
            "Move streams to another server or cluster",
            answer="natsctl.client.migration.migration_state:MigrationReport",
            examples=(
                "natsctl migrate --from local --to cluster",
                "natsctl migrate --from local --to cluster --cutover --replicas 3",
                "natsctl migrate --from cluster --to local ORDERS --sample 1000",
            ),
        ),
    ),
    "Servers and accounts": (
        Verb("server, srv, sys, system", "server.VERBS", "Run natsctl's own server, inspect and manage others"),
        Verb("cluster", "cluster.VERBS", "Run a cluster of nats-servers here, or write the files of one"),
        Verb("account, a, act", "account.VERBS", "Show JetStream use and limits of the account"),
        Verb(
            "events, event, e",
            "events.events",
            "Show advisories and metrics as they arrive",
            answer="cli.answer_documents:Happened*|cli.answer_documents:CloudEvent*",
            examples=(
                "natsctl events --short",
                "natsctl events --js-metric --consumer ORDERS.NEW --count 1 -j",
            ),
        ),
        Verb(
            "top",
            "top.top",
            "Show a server's activity and its connections, live",
            answer="client.system.top:TopView*",
            examples=("natsctl top SRV1 --sort msgs_to", "natsctl top -o connections.csv"),
        ),
        Verb(
            "rtt",
            "latency.rtt",
            "Measure round trips to every address of the servers",
            answer="client.latency:Trips[]",
            examples=("natsctl rtt 10",),
        ),
        Verb(
            "latency, lat",
            "latency.latency",
            "Measure how long messages take between two servers",
            answer="client.latency:LatencyReport",
            examples=("natsctl latency --server-b other:4222 --rate 5000 --duration 10s",),
        ),
        Verb("audit", "audit.VERBS", "Check a deployment for problems"),
        Verb("auth", "auth.VERBS", "Manage operators, accounts and users of JWT logins"),
        Verb("jwt", "jwt.VERBS", "Show the claims of JWTs"),
        Verb("bench", "bench.VERBS", "Benchmark a server: publishing, subscribing, streams, buckets, services"),
    ),
    "natsctl itself": (
        Verb("context, ctx", "context.VERBS", "Create, list, choose and check contexts: servers and logins by name"),
        Verb(
            "batch",
            "batch.batch",
            "Run the command lines of a file or stdin",
            answer="cli.batch:BatchResult*",
            examples=("natsctl batch setup.txt", "natsctl batch --keep-going -j setup.txt"),
        ),
        Verb("completion", "completion.VERBS", "Install or print shell completion for bash, zsh and fish"),
        Verb("schema", "schema.VERBS", "Show the JSON schemas of -j and of the API, and validate documents"),
        Verb("errors, err, error", "errors.VERBS", "Explain JetStream's errors by number"),
        Verb(
            "cheat",
            "cheat.cheat",
            "Show example command lines by topic",
            answer="cheat:Topic[]",
            examples=("natsctl cheat stream",),
        ),
        Verb("tour", "tour.tour", "Run the ORDERS scenario from start to end on a temporary server"),
    ),
}
NOUNS = tuple(noun for nouns in HEADINGS.values() for noun in nouns)
BY_WORD: Mapping[str, Verb] = {word: noun for noun in NOUNS for word in noun.words}


def every_verb() -> Iterator[tuple[str, Verb]]:
    """Yield every row with its path (`stream add`): nouns, groups and commands."""
    for noun in NOUNS:
        yield noun.name, noun
        yield from ((f"{noun.name} {path}", verb) for path, verb in noun.below())


def every_command() -> Iterator[tuple[str, Verb]]:
    """Yield every command that can run, by its path: groups that need a verb are left out."""
    return ((path, verb) for path, verb in every_verb() if verb.default or not verb.is_group)
