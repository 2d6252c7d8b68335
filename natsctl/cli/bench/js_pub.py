"""`natsctl bench js pub`: the ways to publish to a stream."""

from natsctl.cli.bench import REPORT
from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "sync",
        "bench.storing:sync",
        answer=REPORT,
        examples=("natsctl bench js pub sync test.load --create --msgs 10000",),
    ),
    Verb(
        "async",
        "bench.storing:asynchronous",
        answer=REPORT,
        examples=("natsctl bench js pub async test.load --create --batch 500 --clients 2",),
    ),
    Verb(
        "atomic, batch",
        "bench.storing:atomic",
        answer=REPORT,
        examples=("natsctl bench js pub atomic test.load --create --batch 1000",),
    ),
    Verb(
        "fast",
        "bench.storing:fast",
        answer=REPORT,
        examples=("natsctl bench js pub fast test.load --create --max-outstanding-acks 2",),
    ),
)
