"""`natsctl kv`: the commands about key-value buckets."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "add, new",
        "kv.config:add",
        answer="cli.kv.shapes:Bucket",
        examples=("natsctl kv add CONFIG --history 5 --ttl 30d", "natsctl kv add COPY --mirror CONFIG"),
    ),
    Verb(
        "edit",
        "kv.config:edit",
        answer="cli.kv.shapes:Bucket",
        examples=("natsctl kv edit CONFIG --history 10 --dry-run",),
    ),
    Verb(
        "put",
        "kv.write:put",
        answer="cli.kv.shapes:Written",
        examples=(
            "natsctl kv put CONFIG db.host db1.example.net",
            "cat cert.pem | natsctl kv put CONFIG cert",
            "date | natsctl kv put CONFIG last_run -",
        ),
    ),
    Verb(
        "get",
        "kv.read:get",
        answer="cli.kv.shapes:Entry",
        examples=("natsctl kv get CONFIG db.host", "natsctl kv get CONFIG db.host --revision 3 --raw"),
    ),
    Verb(
        "create",
        "kv.write:create",
        answer="cli.kv.shapes:Written",
        examples=('natsctl kv create LOCKS job.7 "$HOSTNAME" --ttl 5m',),
    ),
    Verb(
        "update",
        "kv.write:update",
        answer="cli.kv.shapes:Written",
        examples=("natsctl kv update CONFIG db.host db2.example.net 7",),
    ),
    Verb(
        "del, rm, delete",
        "kv.remove:rm",
        answer="cli.kv.shapes:Removed",
        examples=("natsctl kv del CONFIG db.host", "natsctl kv del CONFIG --all --force --missing-ok"),
    ),
    Verb(
        "purge",
        "kv.remove:purge",
        answer="cli.kv.shapes:Purged",
        examples=("natsctl kv purge CONFIG db.host", 'natsctl kv purge CONFIG "db.>" --dry-run'),
    ),
    Verb("history", "kv.read:history", answer="cli.kv.shapes:Entry[]", examples=("natsctl kv history CONFIG db.host",)),
    Verb("revert", "kv.write:revert", answer="cli.kv.shapes:Written", examples=("natsctl kv revert CONFIG db.host 3",)),
    Verb("info, view, status", "kv.ls:info", answer="cli.kv.shapes:Bucket"),
    Verb(
        "watch",
        "kv.watch:watch",
        answer="cli.kv.shapes:Entry*",
        examples=('natsctl kv watch CONFIG "db.>" --updates', "natsctl kv watch CONFIG --count 1 --wait 1m -j"),
    ),
    Verb(
        "ls, list",
        "kv.ls:ls",
        answer="cli.kv.shapes:Listed[]",
        examples=("natsctl kv ls", 'natsctl kv ls CONFIG "db.*" -v --display-value'),
    ),
    Verb(
        "compact", "kv.remove:compact", answer="cli.kv.shapes:Purged", examples=("natsctl kv compact CONFIG --force",)
    ),
)
