"""`natsctl pipeline`: streams through Spark's declarative pipelines."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "init",
        "pipeline.init:init",
        answer="cli.pipeline.shapes:Initialised",
        examples=("natsctl pipeline init shop --stream ORDERS",),
    ),
    Verb(
        "validate, check",
        "pipeline.validate:validate",
        answer="cli.pipeline.shapes:Checked",
        examples=("natsctl pipeline validate shop",),
    ),
    Verb(
        "run",
        "pipeline.run:run",
        answer="cli.pipeline.shapes:Happened*|cli.pipeline.shapes:Started",
        examples=(
            "natsctl pipeline run shop --once",
            "natsctl pipeline run shop --interval 30s --detach",
            "natsctl pipeline run shop --once --full-refresh messages --force",
        ),
    ),
    Verb(
        "status, info",
        "pipeline.status:status",
        answer="cli.pipeline.shapes:Status",
        examples=("natsctl pipeline status shop", "natsctl pipeline status --checkpoint /data/checkpoints/orders"),
    ),
    Verb("ls, list", "pipeline.ls:ls", answer="cli.pipeline.shapes:Known[]"),
    Verb("logs, log", "pipeline.logs:logs", answer="cli.pipeline.shapes:Happened*"),
    Verb("stop", "pipeline.stop:stop", answer="cli.pipeline.shapes:Stopped", examples=("natsctl pipeline stop shop",)),
)
