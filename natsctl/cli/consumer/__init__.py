"""`natsctl consumer`: the commands about consumers."""

from natsctl.cli.framework.verbs import Verb, verb

VERBS = (
    verb(
        "add, create, new",
        "consumer.definition.add",
        "ConsumerCreateAnswer|ConsumerInfoAnswer|ConsumerConfig",
        "natsctl con add ORDERS NEW --pull --filter ORDERS.received --max-deliver 20",
        "natsctl con add ORDERS MONITOR --target monitor.ORDERS --deliver last",
        "natsctl con add ORDERS WORK --overflow-groups jobs --if-not-exists",
    ),
    verb(
        "edit, update",
        "consumer.definition.edit",
        "ConsumerCreateAnswer|ConsumerInfoAnswer",
        "natsctl con edit ORDERS NEW --max-deliver 5 --dry-run",
        "natsctl con edit ORDERS NEW --unset max_deliver --unset metadata.team",
    ),
    verb(
        "copy, cp",
        "consumer.definition.copy",
        "ConsumerCreateAnswer|ConsumerInfoAnswer",
        "natsctl con copy ORDERS NEW NEW2 --filter ORDERS.returned",
    ),
    verb("ls, list, l", "consumer.listing.ls", "schema:Names|ConsumerInfo[]"),
    verb(
        "find, query",
        "consumer.listing.find",
        "ConsumerInfo[]",
        "natsctl con find ORDERS --pull --idle 1h -n",
        "natsctl con find ORDERS --expression 'state.num_pending > 1000'",
    ),
    verb("info, nfo, i", "consumer.listing.info", "ConsumerInfoAnswer"),
    verb("state", "consumer.listing.state", "ConsumerInfoAnswer"),
    verb(
        "report",
        "consumer.activity.report",
        "cli.consumer.activity:Report|cli.consumer.activity:Report*",
        "natsctl con report ORDERS --sort unprocessed --watch 2s",
    ),
    verb(
        "next",
        "consumer.reading.next_message",
        "cli.consumer.reading:Delivered*",
        "natsctl con next ORDERS NEW --count 5 --wait 2s",
        "natsctl con next ORDERS NEW --nak --delay 30s",
    ),
    verb(
        "fetch",
        "consumer.reading.fetch",
        "cli.consumer.reading:Delivered*",
        "natsctl con fetch ORDERS NEW --batch 500 --max-bytes 1MB --no-wait -j",
    ),
    verb(
        "sub",
        "consumer.reading.sub",
        "cli.consumer.reading:Delivered*",
        "natsctl con sub ORDERS NEW",
        "natsctl con sub ORDERS --ordered --subject 'ORDERS.new' --since 1h",
    ),
    verb(
        "pause",
        "consumer.control.pause",
        "ConsumerPauseAnswer",
        "natsctl con pause ORDERS NEW 1h -f",
        "natsctl con pause ORDERS NEW 2026-12-24T18:00:00Z -f",
    ),
    verb("resume", "consumer.control.resume", "ConsumerPauseAnswer"),
    verb("unpin", "consumer.control.unpin", "ConsumerUnpinAnswer"),
    verb("reset", "consumer.control.reset", "ConsumerResetAnswer", "natsctl con reset ORDERS NEW --sequence 100 -f"),
    verb(
        "rm, delete, del",
        "consumer.control.rm",
        "ConsumerDeleteAnswer|cli.consumer.activity:Removed",
        "natsctl con rm ORDERS NEW -f --missing-ok",
        "natsctl con rm ORDERS 'TMP_*' -f",
    ),
    verb(
        "events",
        "consumer.activity.events",
        "ConsumerAckMetric*|MaxDeliver*|Nak*|Terminated*|ConsumerChanged*|ConsumerPause*|GroupPinned*|GroupUnpinned*",
        "natsctl con events ORDERS NEW --count 10",
    ),
    Verb("graph", "consumer.activity.graph"),
    Verb("cluster, c", "consumer.leaders.VERBS", "Move and balance the leaders of consumers in a cluster"),
)
