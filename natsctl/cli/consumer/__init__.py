"""`natsctl consumer`: the commands about consumers."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "add, create, new",
        "consumer.config:add",
        answer="ConsumerCreateAnswer",
        examples=(
            "natsctl con add ORDERS NEW --pull --filter ORDERS.received --max-deliver 20",
            "natsctl con add ORDERS MONITOR --target monitor.ORDERS --deliver last",
        ),
    ),
    Verb("edit, update", "consumer.config:edit", answer="ConsumerInfoAnswer"),
    Verb("copy, cp", "consumer.config:copy", answer="ConsumerCreateAnswer"),
    Verb("ls, list", "consumer.manage:ls", answer="ConsumerInfo[]"),
    Verb("info, nfo, i", "consumer.manage:info", answer="ConsumerInfoAnswer"),
    Verb("state", "consumer.manage:state", answer="ConsumerInfoAnswer"),
    Verb("rm, delete, del", "consumer.manage:rm", answer="ConsumerDeleteAnswer"),
    Verb("next", "consumer.messages:next_message", examples=("natsctl consumer next ORDERS NEW --count 5 --wait 2s",)),
    Verb("sub", "consumer.messages:sub"),
    Verb("events", "consumer.messages:events"),
)
