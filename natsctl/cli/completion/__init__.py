"""`natsctl completion`: words for the shell, while one types."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb("bash", "completion.install:bash"),
    Verb("zsh", "completion.install:zsh"),
    Verb("fish", "completion.install:fish"),
    Verb(
        "install",
        "completion.install:install",
        answer="cli.completion.shapes:Installed",
        examples=("natsctl completion install zsh",),
    ),
)
