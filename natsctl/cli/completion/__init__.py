"""`natsctl completion`: words for the shell, while one types."""

from typing import TYPE_CHECKING

from natsctl.cli.verbs import LazyModule, Verb

if TYPE_CHECKING:
    from natsctl.cli.completion import install
else:
    install = LazyModule("natsctl.cli.completion.install")

VERBS = (
    Verb("bash", install.bash),
    Verb("zsh", install.zsh),
    Verb("fish", install.fish),
    Verb(
        "install",
        install.install,
        answer="cli.completion.shapes:Installed",
        examples=("natsctl completion install zsh",),
    ),
)
