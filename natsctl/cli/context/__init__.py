"""`natsctl context`: which servers there are, and how to log in there."""

from natsctl.cli.verbs import Verb

_ONE = "cli.context.shapes:Context"

VERBS = (
    Verb(
        "add, create, save",
        "context.save:add",
        answer=_ONE,
        examples=(
            "natsctl context add prod -s nats://prod:4222 --creds ~/prod.creds",
            "natsctl context add lab -s lab:4222 --user bob --password-stdin",
        ),
    ),
    Verb("edit, vi", "context.save:edit", answer=_ONE, examples=("natsctl context edit prod --js-domain hub",)),
    Verb("copy, cp", "context.save:copy", answer=_ONE, examples=("natsctl context copy prod stage -s stage:4222",)),
    Verb("ls, list, l", "context.show:ls", answer="cli.context.shapes:Context[]"),
    Verb("info, show, view, v", "context.show:info", answer=_ONE),
    Verb("validate, check", "context.show:validate", answer="cli.context.shapes:Checked[]"),
    Verb("select, switch, set", "context.choose:select", answer=_ONE, examples=("natsctl context select prod",)),
    Verb("previous, -", "context.choose:previous", answer=_ONE),
    Verb("unselect", "context.choose:unselect", answer="cli.context.shapes:Unselected"),
    Verb("rm, remove, delete", "context.choose:rm", answer="cli.context.shapes:Removed"),
)
