"""`account tls` as a page."""

from __future__ import annotations

from collections.abc import Sequence

from natsctl.api.units import plural
from natsctl.cli.render.page import Page
from natsctl.cli.render.values import duration, listed, safe, when, yes
from natsctl.client.certificates import Certificate


def render_chain(certificates: Sequence[Certificate], ocsp: bool) -> Page:
    """The page: a section for each certificate."""
    page = Page(f"TLS chain of {plural(len(certificates), 'certificate')}")
    for number, one in enumerate(certificates, 1):
        section = page.section(f"Certificate {number}")
        section.row("Subject", safe(one.subject))
        section.row("Issuer", safe(one.issuer))
        section.maybe("Names", listed(one.names))
        section.row("Serial", safe(one.serial))
        section.row("Not Before", when(one.not_before))
        left = one.expires_in_ns
        ends = f"in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
        section.row("Not After", f"{when(one.not_after)} ({ends})")
        section.row("Certificate Authority", yes(one.is_ca))
        section.row("Public Key", safe(one.key))
        section.maybe("Signature Hash", safe(one.signature))
        section.row("SHA-256", safe(one.sha256))
        if ocsp:
            section.row("OCSP Responders", listed(one.ocsp) or "none")
            section.row("Must Staple", yes(one.must_staple))
    return page
