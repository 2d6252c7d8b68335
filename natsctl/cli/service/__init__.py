"""`natsctl service`: services of the micro protocol."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb("ls, list, l", "service.show:ls", answer="client.services.documents:ServiceInfo[]"),
    Verb(
        "info, i",
        "service.show:info",
        answer="service.shapes:Instances",
        examples=("natsctl service info orders --endpoint '^new'",),
    ),
    Verb("stats", "service.show:stats", answer="client.services.documents:ServiceStats[]"),
    Verb("ping", "service.show:ping", answer="client.services.documents:Pinged[]"),
    Verb(
        "request, req",
        "service.request:request",
        answer="cli.service.shapes:Answered",
        examples=("natsctl service request orders new @order.json",),
    ),
    Verb(
        "serve", "service.serve:serve", answer="cli.service.shapes:Handled*", examples=("natsctl service serve demo",)
    ),
)
