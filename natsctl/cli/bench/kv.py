"""`natsctl bench kv`: values in and out of a bucket."""

from natsctl.cli.bench import REPORT
from natsctl.cli.verbs import Verb

VERBS = (
    Verb("put", "bench.bucket:put", answer=REPORT, examples=("natsctl bench kv put --msgs 10000 --randomize 1000",)),
    Verb("get", "bench.bucket:get", answer=REPORT, examples=("natsctl bench kv get --msgs 10000 --randomize 1000",)),
)
