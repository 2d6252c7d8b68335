"""Signatures of logins, against the vectors of RFC 8032 and the library that servers check them with."""

import base64

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.wire.ed25519 import SeedError, check_seed, nonce_signature, public_key, public_nkey, sign
from tests.support import tiers

VECTORS = [  # of section 7.1: seed, public key, message, signature
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
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


@given(
    st.binary(min_size=32, max_size=32),
    st.sampled_from([nkeys.PREFIX_BYTE_USER, nkeys.PREFIX_BYTE_ACCOUNT]),
    st.binary(max_size=100),
)
@tiers.examples(100)
def test_the_library_of_servers_accepts_every_signature(raw: bytes, kind: int, nonce: bytes) -> None:
    pair = nkeys.from_seed(nkeys.encode_seed(raw, kind))
    seed = pair.seed.decode()
    signature = nonce_signature(seed, nonce)
    assert public_nkey(seed) == pair.public_key.decode()
    pair.verify(nonce, base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4)))


SEED = nkeys.from_seed(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER)).seed.decode()
TYPO = SEED[:-1] + ("A" if SEED[-1] != "A" else "B")


@pytest.mark.parametrize("text", ["", "SU", "no seed", "S" * 58, "UAMC" * 14, TYPO])
def test_what_is_no_seed_is_told_without_showing_it(text: str) -> None:
    with pytest.raises(SeedError) as caught:
        check_seed(text)
    assert not text or text not in str(caught.value)
