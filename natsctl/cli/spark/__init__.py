"""`natsctl spark`: what Spark needs on this machine, and how it starts quickly."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "doctor, check",
        "spark.doctor:doctor",
        answer="spark.session.doctor:Checkup",
        examples=("natsctl spark doctor", "natsctl spark doctor --start -j"),
    ),
    Verb(
        "warm",
        "spark.warm:warm",
        answer="cli.spark.shapes:WarmStart",
        examples=("natsctl spark warm",),
    ),
    Verb(
        "start, run",
        "spark.server:start",
        answer="cli.spark.shapes:SparkServer",
        examples=("natsctl spark start", "natsctl spark start --conf spark.driver.memory=8g"),
    ),
    Verb("stop", "spark.server:stop", answer="cli.spark.shapes:SparkServer", examples=("natsctl spark stop",)),
    Verb(
        "status, info", "spark.server:status", answer="cli.spark.shapes:SparkServer", examples=("natsctl spark status",)
    ),
)
