"""`natsctl server watch`: what servers, accounts and JetStream do right now, until Ctrl-C."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb("servers, server, srv", "server.watch.watch:servers", answer="cli.server.shapes:Activity*"),
    Verb("jetstream, jsz, js", "server.watch.watch:jetstream", answer="cli.server.shapes:Activity*"),
    Verb("accounts, account, acct", "server.watch.watch:accounts", answer="cli.server.shapes:Activity*"),
    Verb("api", "server.watch.api", "Watch the JetStream API"),
)
