"""`natsctl server config`: the configuration of running servers."""

from natsctl.cli.verbs import Verb

VERBS = (Verb("reload", "server.info:reload", answer="cli.server.shapes:ServerAnswer"),)
