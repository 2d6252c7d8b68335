"""`natsctl consumer`: the commands about consumers."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "add, create, new",
        "consumer.add:add",
        answer="ConsumerCreateAnswer|ConsumerInfoAnswer|ConsumerConfig",
        examples=(
            "natsctl con add ORDERS NEW --pull --filter ORDERS.received --max-deliver 20",
            "natsctl con add ORDERS MONITOR --target monitor.ORDERS --deliver last",
            "natsctl con add ORDERS WORK --overflow-groups jobs --if-not-exists",
        ),
    ),
    Verb(
        "edit, update",
        "consumer.edit:edit",
        answer="ConsumerCreateAnswer|ConsumerInfoAnswer",
        examples=(
            "natsctl con edit ORDERS NEW --max-deliver 5 --dry-run",
            "natsctl con edit ORDERS NEW --unset max_deliver --unset metadata.team",
        ),
    ),
    Verb(
        "copy, cp",
        "consumer.copy:copy",
        answer="ConsumerCreateAnswer|ConsumerInfoAnswer",
        examples=("natsctl con copy ORDERS NEW NEW2 --filter ORDERS.returned",),
    ),
    Verb("ls, list, l", "consumer.ls:ls", answer="schema.shapes:Names|ConsumerInfo[]"),
    Verb(
        "find, query",
        "consumer.find:find",
        answer="ConsumerInfo[]",
        examples=(
            "natsctl con find ORDERS --pull --idle 1h -n",
            "natsctl con find ORDERS --expression 'state.num_pending > 1000'",
        ),
    ),
    Verb("info, nfo, i", "consumer.info:info", answer="ConsumerInfoAnswer"),
    Verb("state", "consumer.info:state", answer="ConsumerInfoAnswer"),
    Verb(
        "report",
        "consumer.report:report",
        answer="cli.consumer.shapes:Report|cli.consumer.shapes:Report*",
        examples=("natsctl con report ORDERS --sort unprocessed --watch 2s",),
    ),
    Verb(
        "next",
        "consumer.messages:next_message",
        answer="cli.consumer.shapes:Delivered*",
        examples=(
            "natsctl con next ORDERS NEW --count 5 --wait 2s",
            "natsctl con next ORDERS NEW --nak --delay 30s",
        ),
    ),
    Verb(
        "fetch",
        "consumer.messages:fetch",
        answer="cli.consumer.shapes:Delivered*",
        examples=("natsctl con fetch ORDERS NEW --batch 500 --max-bytes 1MB --no-wait -j",),
    ),
    Verb(
        "sub",
        "consumer.sub:sub",
        answer="cli.consumer.shapes:Delivered*",
        examples=("natsctl con sub ORDERS NEW", "natsctl con sub ORDERS --ordered --subject 'ORDERS.new' --since 1h"),
    ),
    Verb(
        "pause",
        "consumer.pause:pause",
        answer="ConsumerPauseAnswer",
        examples=("natsctl con pause ORDERS NEW 1h -f", "natsctl con pause ORDERS NEW 2026-12-24T18:00:00Z -f"),
    ),
    Verb("resume", "consumer.pause:resume", answer="ConsumerPauseAnswer"),
    Verb("unpin", "consumer.reset:unpin", answer="ConsumerUnpinAnswer"),
    Verb(
        "reset",
        "consumer.reset:reset",
        answer="ConsumerResetAnswer",
        examples=("natsctl con reset ORDERS NEW --sequence 100 -f",),
    ),
    Verb(
        "rm, delete, del",
        "consumer.remove:rm",
        answer="ConsumerDeleteAnswer|cli.consumer.shapes:Removed",
        examples=("natsctl con rm ORDERS NEW -f --missing-ok", "natsctl con rm ORDERS 'TMP_*' -f"),
    ),
    Verb(
        "events",
        "consumer.events:events",
        answer="ConsumerAckMetric*|MaxDeliver*|Nak*|Terminated*|ConsumerAction*|ConsumerPause*|GroupPinned*|GroupUnpinned*",
        examples=("natsctl con events ORDERS NEW --count 10",),
    ),
    Verb("graph", "consumer.graph:graph"),
    Verb("cluster, c", "consumer.cluster", "Move and balance the leaders of consumers in a cluster"),
)
