"""`natsctl errors`: what the numbers of JetStream's errors mean; no server is asked."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "ls, list",
        "errors.show:ls",
        answer="cli.errors.shapes:KnownError[]",
        examples=("natsctl errors ls subject", "natsctl errors ls mirror http -R"),
    ),
    Verb(
        "lookup, find, get, show, view, l",
        "errors.show:lookup",
        answer="cli.errors.shapes:KnownError",
        examples=("natsctl errors lookup 10059",),
    ),
)
