"""`natsctl server`: the included server, and servers as their operators see them."""

from natsctl.cli.verbs import Verb

VERBS = (Verb("run", "server.run:run"),)
