"""`natsctl stream`: the commands about streams."""

from natsctl.cli.framework.verbs import Verb

VERBS = (
    Verb(
        "add, create, new",
        "stream.create.add",
        answer="StreamCreateAnswer|StreamInfoAnswer|StreamConfig",
        examples=(
            'natsctl stream add ORDERS --subjects "ORDERS.*" --max-age 1y',
            "natsctl stream add ORDERS --config orders.json",
        ),
    ),
    Verb(
        "edit, update",
        "stream.edit.edit",
        answer="StreamUpdateAnswer|StreamInfoAnswer",
        examples=("natsctl stream edit ORDERS --max-age 30d --dry-run",),
    ),
    Verb(
        "copy, cp",
        "stream.create.copy",
        answer="StreamCreateAnswer|StreamInfoAnswer",
        examples=('natsctl stream copy ORDERS ARCHIVE --subjects "ARCHIVE.*" --max-age 2y',),
    ),
    Verb(
        "ls, list, l",
        "stream.list.ls",
        answer="schema:Names|StreamInfo[]",
        examples=("natsctl stream ls 'ORDERS*' --sort messages",),
    ),
    Verb(
        "report",
        "stream.reports.report",
        answer="cli.stream.reports:StreamReport|cli.stream.reports:StreamReport*|spark.stream_report:DeepReport",
        examples=(
            "natsctl stream report --sort messages --watch 5s",
            "natsctl stream report ORDERS --deep --html orders.html",
        ),
    ),
    Verb(
        "find, query",
        "stream.list.find",
        answer="StreamInfo[]",
        examples=(
            "natsctl stream find --idle 30d --mirrored --invert",
            "natsctl stream find --expression 'state.messages > 1000'",
        ),
    ),
    Verb("subjects, subj", "stream.reports.subjects", answer="cli.stream.reports:Counts"),
    Verb("info, nfo, i", "stream.info.info", answer="StreamInfoAnswer"),
    Verb("state", "stream.info.state", answer="StreamInfoAnswer"),
    Verb(
        "rm, delete, del",
        "stream.remove.rm",
        answer="StreamDeleteAnswer|cli.stream.messages:Removed|cli.stream.messages:Removed[]",
    ),
    Verb(
        "purge",
        "stream.messages.purge",
        answer="StreamPurgeAnswer|cli.stream.messages:Purged|cli.stream.messages:Purged[]",
        examples=(
            "natsctl stream purge ORDERS --subject ORDERS.scratch -f",
            "natsctl stream purge ORDERS --older-than 30d --dry-run",
        ),
    ),
    Verb("seal", "stream.edit.seal", answer="StreamUpdateAnswer"),
    Verb("rmm", "stream.messages.rmm", answer="StreamMsgDeleteAnswer|cli.stream.messages:Removed"),
    Verb(
        "get",
        "stream.messages.get",
        answer="StoredMsg",
        examples=(
            "natsctl stream get ORDERS 1",
            "natsctl stream get ORDERS --last-for ORDERS.new",
        ),
    ),
    Verb(
        "view",
        "stream.messages.view",
        answer="StoredMsg*",
        examples=("natsctl stream view ORDERS --since 1h", "natsctl stream view ORDERS 100 --subject ORDERS.new -j"),
    ),
    Verb(
        "search, grep",
        "stream.search.search",
        answer="StoredMsg*|cli.stream.search:SearchTotals",
        examples=(
            "natsctl stream search ORDERS 'order-10[0-9]+' --since 1h",
            "natsctl stream search ORDERS --header Nats-Msg-Id:42 -j",
            "natsctl stream search ORDERS --expression 'json.total > 100' --count 5",
        ),
    ),
    Verb("gaps", "stream.reports.gaps", answer="cli.stream.reports:Gaps"),
    Verb("graph", "stream.reports.graph", examples=("natsctl stream graph ORDERS --watch 500ms",)),
    Verb("cluster, c", "stream.peers.VERBS", "Move leaders, and remove servers from streams"),
    Verb(
        "backup, snapshot",
        "stream.transfer.backup",
        answer="client.backup.save:SavedStream",
        examples=("natsctl stream backup ORDERS ORDERS.tgz",),
    ),
    Verb(
        "restore",
        "stream.transfer.restore",
        answer="StreamCreateAnswer|StreamInfoAnswer",
        examples=(
            "natsctl stream restore ORDERS.tgz",
            'natsctl stream restore COPY ORDERS.tgz --subjects "COPY.*"',
            "natsctl stream restore ORDERS.tgz --on-existing replace --force",
        ),
    ),
    Verb(
        "export",
        "stream.transfer.export",
        answer="spark.files.file_export:Exported",
        examples=(
            "natsctl stream export ORDERS orders.parquet",
            "natsctl stream export ORDERS orders/ --partition-by date --incremental",
            "natsctl stream export ORDERS new.jsonl --subject 'ORDERS.*.new' --since 1d",
        ),
    ),
    Verb(
        "import, load",
        "stream.transfer.load",
        answer="cli.stream.transfer:Imported",
        examples=(
            "natsctl stream import ORDERS orders.parquet --dry-run",
            "natsctl stream import EVENTS rows.csv --subject EVENTS.old --row-as-json",
        ),
    ),
    Verb("template, tmpl", "stream.stream_templates.VERBS", "Make, list, show and remove stream templates"),
)
