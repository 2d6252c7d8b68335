"""Table of the commands: each noun with its verbs, or with its function if it has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from natsctl.cli.framework.nouns import NOUNS
from natsctl.cli.framework.verbs import LazyModule, Verb, lazy_modules

if TYPE_CHECKING:
    from natsctl.cli import (
        account,
        audit,
        auth,
        backup,
        bench,
        cheat,
        cluster,
        completion,
        consumer,
        context,
        counter,
        errors,
        events,
        jwt,
        kv,
        latency,
        migrate,
        object,
        pipeline,
        schema,
        server,
        service,
        spark,
        sql,
        stream,
        top,
        tour,
    )
    from natsctl.cli.backup import accounts
    from natsctl.cli.desired import apply, convert, export, plan, sources
    from natsctl.cli.messaging import publish, request_reply, subscribe
else:
    account, audit, auth, backup, bench, cheat, completion, consumer, context, counter, errors, events = lazy_modules(
        "natsctl.cli", "account audit auth backup bench cheat completion consumer context counter errors events"
    )
    cluster, jwt, kv = lazy_modules("natsctl.cli", "cluster jwt kv")
    latency, migrate, object, pipeline, schema, server, service, spark, sql, stream, top, tour = lazy_modules(
        "natsctl.cli", "latency migrate object pipeline schema server service spark sql stream top tour"
    )
    accounts = LazyModule("natsctl.cli.backup.accounts")
    apply, convert, export, plan, sources = lazy_modules("natsctl.cli.desired", "apply convert export plan sources")
    publish, request_reply, subscribe = lazy_modules("natsctl.cli.messaging", "publish request_reply subscribe")


COMMANDS: Mapping[str, Verb] = {
    row.name: row
    for row in (
        Verb("account", account.VERBS),
        Verb("stream", stream.VERBS),
        Verb("consumer", consumer.VERBS),
        Verb(
            "publish",
            publish.publish,
            answer="cli.answer_documents:Published|PubAck*",
            examples=(
                'natsctl publish ORDERS.new "hello" --wait',
                "cat order.json | natsctl publish ORDERS.new",
            ),
        ),
        Verb(
            "request",
            request_reply.request,
            answer="cli.answer_documents:Response*",
            examples=("natsctl request ORDERS.new hello",),
        ),
        Verb(
            "subscribe",
            subscribe.subscribe,
            answer="cli.answer_documents:Message*|cli.answer_documents:Counted[]",
            examples=('natsctl subscribe "ORDERS.*" --count 3',),
        ),
        Verb("kv", kv.VERBS),
        Verb("object", object.VERBS),
        Verb(
            "reply",
            request_reply.reply,
            answer="cli.answer_documents:Answered*",
            examples=(
                "natsctl reply time.now --command date",
                "natsctl reply 'weather.>' --command \"curl -s wttr.in/{{1}}?format=3\"",
            ),
        ),
        Verb(
            "trace",
            request_reply.trace,
            answer="cli.answer_documents:Traced",
            examples=("natsctl trace ORDERS.new",),
        ),
        Verb(
            "events",
            events.events,
            answer="cli.answer_documents:Happened*|cli.answer_documents:CloudEvent*",
            examples=(
                "natsctl events --short",
                "natsctl events --js-metric --consumer ORDERS.NEW --count 1 -j",
            ),
        ),
        Verb(
            "backup",
            backup.VERBS,
            answer="cli.backup.accounts:ConfigurationBackup",
            examples=("natsctl backup ./saved --data",),
            default=accounts.backup,
        ),
        Verb(
            "restore",
            accounts.restore,
            answer="cli.backup.accounts:ConfigurationBackup",
            examples=("natsctl restore ./saved --update-streams",),
        ),
        Verb(
            "migrate",
            migrate.migrate,
            answer="natsctl.client.migration.migration_state:MigrationReport",
            examples=(
                "natsctl migrate --from local --to cluster",
                "natsctl migrate --from local --to cluster --cutover --replicas 3",
                "natsctl migrate --from cluster --to local ORDERS --sample 1000",
            ),
        ),
        Verb(
            "validate",
            sources.validate,
            answer="desired.sources:Validated",
            examples=("natsctl validate -f orders.yaml", "natsctl validate -f deploy/ --var ENV=staging -j"),
        ),
        Verb(
            "export",
            export.export,
            answer="natsctl.desired.export:PlainDocument|natsctl.desired.export:TypedDocument[]"
            "|natsctl.desired.documents.files:FilesWritten",
            examples=(
                "natsctl export > account.yaml",
                "natsctl export 'ORDERS*' --output streams/ --force",
            ),
        ),
        Verb("convert", convert.VERBS),
        Verb(
            "plan",
            plan.plan,
            answer="natsctl.desired.plan:SavedPlan",
            examples=("natsctl plan -f orders.yaml", "natsctl plan -f deploy/ --prune --out changes.json"),
        ),
        Verb("diff", plan.diff, answer="desired.plan:Drift", examples=("natsctl diff -f orders.yaml",)),
        Verb(
            "apply",
            apply.apply,
            answer="desired.apply:Applied",
            examples=(
                "natsctl apply -f orders.yaml",
                "natsctl apply -f deploy/ --prune --owner shop",
                "natsctl apply --plan changes.json",
            ),
        ),
        Verb(
            "destroy", apply.destroy, answer="desired.apply:Applied", examples=("natsctl destroy -f orders.yaml --yes",)
        ),
        Verb(
            "sql",
            sql.sql,
            answer="cli.sql:Rows|cli.sql:Explained",
            examples=(
                'natsctl sql "select subject, count(*) from ORDERS group by 1"',
                "natsctl sql 'select string(value) from ORDERS where seq > 100' --limit 9 -j",
                "natsctl sql @report.sql --csv",
            ),
        ),
        Verb("pipeline", pipeline.VERBS),
        Verb("spark", spark.VERBS),
        Verb("errors", errors.VERBS),
        Verb("schema", schema.VERBS),
        Verb("cheat", cheat.cheat, answer="cheat:Topic[]", examples=("natsctl cheat stream",)),
        Verb("completion", completion.VERBS),
        Verb("context", context.VERBS),
        Verb("server", server.VERBS),
        Verb("cluster", cluster.VERBS),
        Verb("jwt", jwt.VERBS),
        Verb("audit", audit.VERBS),
        Verb("auth", auth.VERBS),
        Verb("bench", bench.VERBS),
        Verb("counter", counter.VERBS),
        Verb("service", service.VERBS),
        Verb("rtt", latency.rtt, answer="client.latency:Trips[]", examples=("natsctl rtt 10",)),
        Verb(
            "latency",
            latency.latency,
            answer="client.latency:LatencyReport",
            examples=("natsctl latency --server-b other:4222 --rate 5000 --duration 10s",),
        ),
        Verb(
            "top",
            top.top,
            answer="client.system.top:TopView*",
            examples=("natsctl top SRV1 --sort msgs_to", "natsctl top -o connections.csv"),
        ),
        Verb("tour", tour.tour),
    )
}
"""The row of each noun, by its name."""


def every_verb() -> Iterator[tuple[str, Verb]]:
    """Yield every row with the words that lead there (`stream add`): nouns, groups and commands."""
    for noun in NOUNS:
        row = COMMANDS[noun.name]
        yield noun.name, row
        yield from ((f"{noun.name} {path}", verb) for path, verb in row.below())


def every_command() -> Iterator[tuple[str, Verb]]:
    """Yield every command that can run (`stream add`) with its row: groups that need a verb are left out."""
    return ((path, verb) for path, verb in every_verb() if verb.default or not verb.is_group)
