"""Nkeys: seeds of every kind, signatures and encryption, beside those of the nkeys library and of nats."""

import nkeys
import pytest

from natsctl.api.errors import UsageError
from natsctl.api.jwt_token import Kind
from natsctl.client.auth.keys import KINDS, generate_key, kind_of, parse_key

SENDER_OF_NATS = "XC36BEJJIYAYLGYXBNZKUMKAWU3YQWXHN46HZADJ4ZVOJF25NIZEGEMK"
RECIPIENT_OF_NATS = "SXALF5DMEAWLKPR2NQIJFDGO3RGWETGCMP5ONRVI6TIMPIA5PHPXCGRF7Q"


@pytest.mark.parametrize(("kind", "letter"), list(zip(KINDS, "OAUNCX", strict=True)))
def test_a_key_is_read_again_from_its_seed_and_its_public_key(kind: Kind, letter: str) -> None:
    key = generate_key(kind)
    assert key.seed.startswith(f"S{letter}") and key.public.startswith(letter)
    again, public = parse_key(key.seed + "\n"), parse_key(key.public)
    assert (again.kind, again.public, again.seed) == (kind, key.public, key.seed)
    assert (public.kind, public.is_private) == (kind, False) and kind_of(key.public) == kind
    assert key.seed not in repr(key)


@pytest.mark.parametrize("kind", ["operator", "account", "user", "server", "cluster"])
def test_keys_and_signatures_are_those_of_the_nkeys_library(kind: Kind) -> None:
    key = generate_key(kind, bytes(range(32)))
    theirs = nkeys.from_seed(bytearray(key.seed.encode()))
    assert theirs.public_key.decode() == key.public
    assert theirs.sign(b"data") == key.sign(b"data")
    parse_key(key.public).verify(b"data", key.sign(b"data"))


@pytest.mark.parametrize(
    "text",
    ["", "SUAAAAAA", SENDER_OF_NATS[:-2] + "AA", RECIPIENT_OF_NATS[:-1] + "!", RECIPIENT_OF_NATS.lower()],
)
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError, match="neither a seed nor") as caught:
        parse_key(text, "key.nk")
    assert not text or text not in str(caught.value)


def test_a_key_does_only_what_its_kind_can() -> None:
    curve, user = generate_key("curve"), generate_key("user")
    with pytest.raises(UsageError, match="cannot sign"):
        curve.sign(b"data")
    with pytest.raises(UsageError, match="cannot verify"):
        curve.verify(b"data", b"")
    with pytest.raises(UsageError, match="encryption needs a curve key"):
        user.seal(b"data", curve.public)
    with pytest.raises(UsageError, match="begins with X"):
        curve.seal(b"data", user.public)
    with pytest.raises(UsageError, match="needs the private key"):
        parse_key(user.public).sign(b"data")
    with pytest.raises(UsageError, match="expected a key of kind account"):
        parse_key(user.public, "", "account")
