"""Key pairs that sign and encrypt, against what nats-io/nkeys makes of the same keys."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.jwt_token import has_signed, is_public
from natsctl.api.nkey_pairs import NONCE_BYTES, CurvePair, SealError, SigningPair, public_text


def raw_seed(text: str) -> bytes:
    return base64.b32decode(text + "=" * (-len(text) % 8))[2:34]


OURS = CurvePair(raw_seed("SXAAXMRAEP6JWWHNB6IKFL554IE6LZVT6EY5MBRICPILTLOPHAG73I3YX4"))
THEIRS = CurvePair(raw_seed("SXAAOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBZ6RQ"))
SEALED = bytes.fromhex("786b7631" + "09" * 24 + "c597a2e9d64dd50835a28425c35b92e5e72e9cf458afeb8a")
"""What nkeys 0.4.16 (SealWithRand) makes of `a secret` with OURS for THEIRS and a nonce of nines."""


def test_public_keys_are_those_of_nkeys() -> None:
    assert OURS.public == "XAB3NANV3M6N7AHSQP2U5FRWKKUT7EG2ZXXABV4XVXYQRJGM4S2CZGHT"
    assert THEIRS.public == "XAJ34T7K5LZAJR75GNMPZHAAOIMIDULUE6ASQIT6YZ2PG7375F5W23BG"
    assert is_public(OURS.public, "curve") and is_public(public_text("server", bytes(32)), "server")


def test_what_is_sealed_is_what_nkeys_seals() -> None:
    assert OURS.seal(b"a secret", THEIRS.public, b"\x09" * NONCE_BYTES) == SEALED
    assert THEIRS.open(SEALED, OURS.public) == b"a secret"


@pytest.mark.parametrize(
    ("sealed", "sender", "fault"),
    [
        (b"", OURS.public, "encrypted input is not valid"),
        (SEALED[:28], OURS.public, "encrypted input is not valid"),
        (b"xkv2" + SEALED[4:], OURS.public, "encrypted input wrong version"),
        (SEALED, "X", "not a valid sender public curve key"),
        (SEALED, public_text("user", bytes(32)), "not a valid sender public curve key"),
        (SEALED, public_text("curve", bytes(32)), "not a valid sender public curve key"),
        (SEALED, THEIRS.public, "could not decrypt input"),
        (SEALED[:-1] + b"x", OURS.public, "could not decrypt input"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_the_words_of_nkeys(sealed: bytes, sender: str, fault: str) -> None:
    with pytest.raises(SealError, match=f"nkeys: {fault}"):
        THEIRS.open(sealed, sender)


def test_nothing_is_sealed_for_what_is_no_key() -> None:
    with pytest.raises(SealError, match="nkeys: not a valid recipient public curve key"):
        OURS.seal(b"x", "X", bytes(NONCE_BYTES))


@given(st.binary(max_size=200), st.binary(min_size=24, max_size=24))
def test_only_the_recipient_opens_what_is_sealed(data: bytes, nonce: bytes) -> None:
    sealed = OURS.seal(data, THEIRS.public, nonce)
    assert THEIRS.open(sealed, OURS.public) == data
    with pytest.raises(SealError):
        CurvePair(bytes(32)).open(sealed, OURS.public)


def test_a_signature_is_verified_by_the_public_key() -> None:
    pair = SigningPair("server", bytes(range(32)))
    assert is_public(pair.public, "server") and has_signed(pair.public, b"x", pair.sign(b"x"))
    assert not has_signed(pair.public, b"y", pair.sign(b"x"))
