"""`natsctl consumer`: the commands about consumers."""

from natsctl.cli.framework.verbs import Verb

VERBS = (
    Verb(
        "add, create, new",
        "consumer.definition.add",
        answer="ConsumerCreateAnswer|ConsumerInfoAnswer|ConsumerConfig",
        examples=(
            "natsctl con add ORDERS NEW --pull --filter ORDERS.received --max-deliver 20",
            "natsctl con add ORDERS MONITOR --target monitor.ORDERS --deliver last",
            "natsctl con add ORDERS WORK --overflow-groups jobs --if-not-exists",
        ),
    ),
    Verb(
        "edit, update",
        "consumer.definition.edit",
        answer="ConsumerCreateAnswer|ConsumerInfoAnswer",
        examples=(
            "natsctl con edit ORDERS NEW --max-deliver 5 --dry-run",
            "natsctl con edit ORDERS NEW --unset max_deliver --unset metadata.team",
        ),
    ),
    Verb(
        "copy, cp",
        "consumer.definition.copy",
        answer="ConsumerCreateAnswer|ConsumerInfoAnswer",
        examples=("natsctl con copy ORDERS NEW NEW2 --filter ORDERS.returned",),
    ),
    Verb("ls, list, l", "consumer.listing.ls", answer="schema:Names|ConsumerInfo[]"),
    Verb(
        "find, query",
        "consumer.listing.find",
        answer="ConsumerInfo[]",
        examples=(
            "natsctl con find ORDERS --pull --idle 1h -n",
            "natsctl con find ORDERS --expression 'state.num_pending > 1000'",
        ),
    ),
    Verb("info, nfo, i", "consumer.listing.info", answer="ConsumerInfoAnswer"),
    Verb("state", "consumer.listing.state", answer="ConsumerInfoAnswer"),
    Verb(
        "report",
        "consumer.activity.report",
        answer="cli.consumer.activity:Report|cli.consumer.activity:Report*",
        examples=("natsctl con report ORDERS --sort unprocessed --watch 2s",),
    ),
    Verb(
        "next",
        "consumer.reading.next_message",
        answer="cli.consumer.reading:Delivered*",
        examples=(
            "natsctl con next ORDERS NEW --count 5 --wait 2s",
            "natsctl con next ORDERS NEW --nak --delay 30s",
        ),
    ),
    Verb(
        "fetch",
        "consumer.reading.fetch",
        answer="cli.consumer.reading:Delivered*",
        examples=("natsctl con fetch ORDERS NEW --batch 500 --max-bytes 1MB --no-wait -j",),
    ),
    Verb(
        "sub",
        "consumer.reading.sub",
        answer="cli.consumer.reading:Delivered*",
        examples=("natsctl con sub ORDERS NEW", "natsctl con sub ORDERS --ordered --subject 'ORDERS.new' --since 1h"),
    ),
    Verb(
        "pause",
        "consumer.control.pause",
        answer="ConsumerPauseAnswer",
        examples=("natsctl con pause ORDERS NEW 1h -f", "natsctl con pause ORDERS NEW 2026-12-24T18:00:00Z -f"),
    ),
    Verb("resume", "consumer.control.resume", answer="ConsumerPauseAnswer"),
    Verb("unpin", "consumer.control.unpin", answer="ConsumerUnpinAnswer"),
    Verb(
        "reset",
        "consumer.control.reset",
        answer="ConsumerResetAnswer",
        examples=("natsctl con reset ORDERS NEW --sequence 100 -f",),
    ),
    Verb(
        "rm, delete, del",
        "consumer.control.rm",
        answer="ConsumerDeleteAnswer|cli.consumer.activity:Removed",
        examples=("natsctl con rm ORDERS NEW -f --missing-ok", "natsctl con rm ORDERS 'TMP_*' -f"),
    ),
    Verb(
        "events",
        "consumer.activity.events",
        answer="ConsumerAckMetric*|MaxDeliver*|Nak*|Terminated*|ConsumerChanged*|ConsumerPause*|GroupPinned*|GroupUnpinned*",
        examples=("natsctl con events ORDERS NEW --count 10",),
    ),
    Verb("graph", "consumer.activity.graph"),
    Verb("cluster, c", "consumer.leaders.VERBS", "Move and balance the leaders of consumers in a cluster"),
)
