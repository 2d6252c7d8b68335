"""`natsctl server account`: accounts as a server's operator sees them."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb("info, i", "server.account.account:info", answer="cli.server.shapes:ServerAnswer"),
    Verb("purge", "server.account.account:purge", answer="cli.server.shapes:Success"),
)
