"""`natsctl counter`: sums in streams, to which many may add at once."""

from natsctl.cli.verbs import Verb

COUNTER = "client.counters:Counter"

VERBS = (
    Verb("get, g", "counter.show:get", answer=COUNTER, examples=("natsctl counter get visits.home",)),
    Verb("view, v", "counter.show:view", answer=COUNTER),
    Verb(
        "ls, list, l",
        "counter.show:ls",
        answer=f"schema.shapes:Names|{COUNTER}[]",
        examples=("natsctl counter ls 'visits.>'",),
    ),
    Verb(
        "increment, incr, inc, i",
        "counter.change:increment",
        answer="PubAck",
        examples=("natsctl counter increment visits.home 5",),
    ),
    Verb("decrement, decr, dec, d", "counter.change:decrement", answer="PubAck"),
)
