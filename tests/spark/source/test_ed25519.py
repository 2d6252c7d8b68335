"""Signatures of logins, against the vectors of RFC 8032 and the library that servers check them with."""

from __future__ import annotations

import base64

import nkeys
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.handshake import public_key, public_key_text, sign, signature_text

VECTORS = [  # of section 7.1: seed, public key, message, signature
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e"
        "2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17a"
        "d9bef1177331a704",
    ),
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_rfc_come_out(seed: str, public: str, message: str, signature: str) -> None:
    assert public_key(bytes.fromhex(seed)).hex() == public
    assert sign(bytes.fromhex(seed), bytes.fromhex(message)).hex() == signature


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
@settings(max_examples=25)
def test_the_library_of_servers_accepts_every_signature(raw: bytes, nonce: bytes) -> None:
    pair = nkeys.from_seed(nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER))
    seed = pair.seed.decode()
    signature = signature_text(seed, nonce)
    assert public_key_text(seed) == pair.public_key.decode()
    pair.verify(nonce, base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4)))


def test_an_account_has_an_account_s_public_key() -> None:
    pair = nkeys.from_seed(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_ACCOUNT))
    assert public_key_text(pair.seed.decode()) == pair.public_key.decode()


@pytest.mark.parametrize("text", ["", "SU", "no seed", "S" * 58, "UAMC" * 14])
def test_what_is_no_seed_is_told_without_showing_it(text: str) -> None:
    with pytest.raises(OptionError, match="seed in it is not valid") as caught:
        public_key_text(text)
    assert not text or text not in str(caught.value)


def test_a_seed_with_a_typing_error_is_told() -> None:
    seed = nkeys.from_seed(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER)).seed.decode()
    with pytest.raises(OptionError):
        public_key_text(seed[:-1] + ("A" if seed[-1] != "A" else "B"))
