"""`natsctl bench js`: messages into and out of streams."""

from natsctl.cli.bench import REPORT
from natsctl.cli.verbs import Verb

VERBS = (
    Verb("pub", "bench.js_pub", "Publish to a stream"),
    Verb("ordered", "bench.reading:ordered", answer=REPORT, examples=("natsctl bench js ordered --msgs 10000",)),
    Verb(
        "consume",
        "bench.reading:consume",
        answer=REPORT,
        examples=("natsctl bench js consume --msgs 10000 --clients 2 --acks all",),
    ),
    Verb("fetch", "bench.reading:fetch", answer=REPORT, examples=("natsctl bench js fetch --batch 100 --doubleack",)),
    Verb("get", "bench.js_get", "Read a stream without a consumer"),
)
