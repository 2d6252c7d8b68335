"""`natsctl stream`: the commands about streams."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "add, create, new",
        "stream.add:add",
        answer="StreamCreateAnswer|StreamInfoAnswer|StreamConfig",
        examples=(
            'natsctl stream add ORDERS --subjects "ORDERS.*" --max-age 1y',
            "natsctl stream add ORDERS --config orders.json",
        ),
    ),
    Verb(
        "edit, update",
        "stream.edit:edit",
        answer="StreamUpdateAnswer|StreamInfoAnswer",
        examples=("natsctl stream edit ORDERS --max-age 30d --dry-run",),
    ),
    Verb(
        "copy, cp",
        "stream.copy:copy",
        answer="StreamCreateAnswer|StreamInfoAnswer",
        examples=('natsctl stream copy ORDERS ARCHIVE --subjects "ARCHIVE.*" --max-age 2y',),
    ),
    Verb(
        "ls, list, l",
        "stream.ls:ls",
        answer="schema.shapes:Names|StreamInfo[]",
        examples=("natsctl stream ls 'ORDERS*' --sort messages",),
    ),
    Verb(
        "report",
        "stream.report:report",
        answer="cli.stream.shapes:StreamReport|cli.stream.shapes:StreamReport*|spark.report.model:DeepReport",
        examples=(
            "natsctl stream report --sort messages --watch 5s",
            "natsctl stream report ORDERS --deep --html orders.html",
        ),
    ),
    Verb(
        "find, query",
        "stream.find:find",
        answer="StreamInfo[]",
        examples=(
            "natsctl stream find --idle 30d --mirrored --invert",
            "natsctl stream find --expression 'state.messages > 1000'",
        ),
    ),
    Verb("subjects, subj", "stream.subjects:subjects", answer="cli.stream.shapes:Counts"),
    Verb("info, nfo, i", "stream.info:info", answer="StreamInfoAnswer"),
    Verb("state", "stream.info:state", answer="StreamInfoAnswer"),
    Verb(
        "rm, delete, del",
        "stream.remove:rm",
        answer="StreamDeleteAnswer|cli.stream.shapes:Removed|cli.stream.shapes:Removed[]",
    ),
    Verb(
        "purge",
        "stream.purge:purge",
        answer="StreamPurgeAnswer|cli.stream.shapes:Purged|cli.stream.shapes:Purged[]",
        examples=(
            "natsctl stream purge ORDERS --subject ORDERS.scratch -f",
            "natsctl stream purge ORDERS --older-than 30d --dry-run",
        ),
    ),
    Verb("seal", "stream.seal:seal", answer="StreamUpdateAnswer"),
    Verb("rmm", "stream.remove:rmm", answer="StreamMsgDeleteAnswer|cli.stream.shapes:Removed"),
    Verb(
        "get",
        "stream.get:get",
        answer="StoredMsg",
        examples=(
            "natsctl stream get ORDERS 1",
            "natsctl stream get ORDERS --last-for ORDERS.new",
        ),
    ),
    Verb(
        "view",
        "stream.view:view",
        answer="StoredMsg*",
        examples=("natsctl stream view ORDERS --since 1h", "natsctl stream view ORDERS 100 --subject ORDERS.new -j"),
    ),
    Verb("gaps", "stream.gaps:gaps", answer="cli.stream.shapes:Gaps"),
    Verb("graph", "stream.graph:graph", examples=("natsctl stream graph ORDERS --watch 500ms",)),
    Verb("cluster, c", "stream.cluster", "Move leaders, and remove servers from streams"),
    Verb(
        "backup, snapshot",
        "stream.backup:backup",
        answer="cli.backup.shapes:SavedStream",
        examples=("natsctl stream backup ORDERS ORDERS.tgz",),
    ),
    Verb(
        "restore",
        "stream.backup:restore",
        answer="StreamCreateAnswer|StreamInfoAnswer",
        examples=(
            "natsctl stream restore ORDERS.tgz",
            'natsctl stream restore COPY ORDERS.tgz --subjects "COPY.*"',
            "natsctl stream restore ORDERS.tgz --on-existing replace --force",
        ),
    ),
    Verb(
        "export",
        "stream.export:export",
        answer="spark.export.report:Exported",
        examples=(
            "natsctl stream export ORDERS orders.parquet",
            "natsctl stream export ORDERS orders/ --partition-by date --incremental",
            "natsctl stream export ORDERS new.jsonl --subject 'ORDERS.*.new' --since 1d",
        ),
    ),
    Verb(
        "import, load",
        "stream.load:load",
        answer="cli.stream.shapes:Imported",
        examples=(
            "natsctl stream import ORDERS orders.parquet --dry-run",
            "natsctl stream import EVENTS rows.csv --subject EVENTS.old --row-as-json",
        ),
    ),
    Verb("template, tmpl", "stream.template", "Make, list, show and remove stream templates"),
)
