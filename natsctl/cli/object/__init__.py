"""`natsctl object`: the commands about object buckets."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "add, new",
        "object.config:add",
        answer="cli.object.shapes:Bucket",
        examples=("natsctl object add RELEASES --max-bucket-size 10GiB --compress",),
    ),
    Verb(
        "edit",
        "object.config:edit",
        answer="cli.object.shapes:Bucket",
        examples=("natsctl object edit RELEASES --ttl 1y --dry-run",),
    ),
    Verb(
        "put",
        "object.transfer:put",
        answer="cli.object.shapes:Object",
        examples=(
            "natsctl object put RELEASES app-1.2.tgz",
            "tar cz . | natsctl object put RELEASES --name src.tgz",
        ),
    ),
    Verb(
        "get",
        "object.transfer:get",
        answer="cli.object.shapes:Fetched",
        examples=(
            "natsctl object get RELEASES app-1.2.tgz -O /tmp/app.tgz",
            "natsctl object get RELEASES notes.txt -O -",
        ),
    ),
    Verb(
        "del, rm, delete",
        "object.remove:rm",
        answer="cli.object.shapes:Removed",
        examples=("natsctl object rm RELEASES app-1.1.tgz --force",),
    ),
    Verb("info, show, i", "object.ls:info", answer="cli.object.shapes:Listed"),
    Verb(
        "ls, list",
        "object.ls:ls",
        answer="cli.object.shapes:Listed[]",
        examples=("natsctl object ls", "natsctl object ls RELEASES -j"),
    ),
    Verb("seal", "object.remove:seal", answer="cli.object.shapes:Bucket"),
    Verb("watch", "object.watch:watch", answer="cli.object.shapes:Object*"),
)
