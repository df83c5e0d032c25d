import base64
import hashlib
import hmac
import json

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from podwire.apiserver.identity import tokens as tokens_module
from podwire.apiserver.identity.tokens import BadToken, Named, Tokens, discovery, key_id, key_set

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = "https://kubernetes.default.svc.cluster.local"
START = 1_800_000_000.0


class SetClock:
    def __init__(self) -> None:
        self.now = START
        self.ticks = 100.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.ticks

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.ticks += seconds


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def signed(header: object, claims: object, key: ec.EllipticCurvePrivateKey = KEY) -> str:
    """A token made by hand, with the header and claims that a test wants."""
    text = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    s = min(s, ec.SECP256R1().group_order - s)
    return f"{text}.{b64(r.to_bytes(32) + s.to_bytes(32))}"


HEADER = {"alg": "ES256", "kid": key_id(KEY.public_key()), "typ": "JWT"}
CLAIMS = {
    "aud": [ISSUER],
    "exp": int(START) + 60,
    "iat": int(START),
    "nbf": int(START),
    "iss": ISSUER,
    "jti": "1",
    "sub": "system:serviceaccount:ns:web",
    "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "web", "uid": "u1"}},
}


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def tokens(clock):
    return Tokens(KEY, ISSUER, [ISSUER, "api"], clock)


def payload(token: str) -> dict:
    return json.loads(unb64(token.split(".")[1]))


def test_a_token_has_upstreams_claims(tokens):
    token, expiration = tokens.issue("ns", "web", "u1", seconds=600, pod=Named("web-0", "u2"), node=Named("n1", "u3"))
    claims = payload(token)
    assert claims.pop("jti")
    assert claims == {
        "aud": [ISSUER, "api"],
        "exp": START + 600,
        "iat": START,
        "nbf": START,
        "iss": ISSUER,
        "sub": "system:serviceaccount:ns:web",
        "kubernetes.io": {
            "namespace": "ns",
            "node": {"name": "n1", "uid": "u3"},
            "pod": {"name": "web-0", "uid": "u2"},
            "serviceaccount": {"name": "web", "uid": "u1"},
        },
    }
    assert json.loads(unb64(token.split(".")[0])) == HEADER
    assert expiration.timestamp() == START + 600


def test_issued_and_handmade_tokens_verify(tokens):
    claims = tokens.verify(tokens.issue("ns", "web", "u1").token)
    assert (claims.sub, claims.private.serviceaccount.uid) == ("system:serviceaccount:ns:web", "u1")
    assert tokens.verify(signed(HEADER, CLAIMS)).private == claims.private


def test_every_token_has_its_own_id(tokens):
    assert len({payload(tokens.issue("ns", "web", "u1").token)["jti"] for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("bound", "kind"),
    [
        pytest.param({}, None, id="to nothing"),
        pytest.param({"pod": Named("p", "1")}, "Pod", id="to a pod"),
        pytest.param({"pod": Named("p", "1"), "node": Named("n", "2")}, "Pod", id="to a pod, with its node"),
        pytest.param({"secret": Named("s", "1")}, "Secret", id="to a secret"),
        pytest.param({"node": Named("n", "1")}, "Node", id="to a node"),
    ],
)
def test_a_token_is_bound(tokens, bound, kind):
    claims = tokens.verify(tokens.issue("ns", "web", "u1", **bound).token)
    assert (claims.bound and claims.bound[0]) == kind


def refusal(tokens: Tokens, token: str, audiences=()) -> str:
    with pytest.raises(BadToken) as caught:
        tokens.verify(token, audiences)
    return caught.value.reason


def test_a_token_ends_at_its_second_even_when_its_signature_is_remembered(tokens, clock):
    token = tokens.issue("ns", "web", "u1", seconds=600).token
    clock.pass_(599.9)
    tokens.verify(token)
    clock.pass_(0.1)
    assert refusal(tokens, token) == "expired"


def test_a_token_from_the_future_waits(tokens, clock):
    token = signed(HEADER, CLAIMS | {"nbf": int(START) + 10})
    assert refusal(tokens, token) == "not yet valid"
    clock.pass_(10)
    tokens.verify(token)


def test_a_wall_clock_set_back_a_little_revives_nothing_and_delays_nothing(tokens, clock):
    ended = tokens.issue("ns", "web", "u1", seconds=10).token
    clock.pass_(60)
    fresh = tokens.issue("ns", "web", "u1").token
    assert refusal(tokens, ended) == "expired"
    clock.now -= 120
    assert refusal(tokens, ended) == "expired"
    tokens.verify(fresh)


def test_a_wall_clock_that_was_wrong_by_a_year_is_believed_when_it_is_put_right(tokens, clock):
    clock.now += 365 * 86400
    tokens.issue("ns", "web", "u1")
    clock.now = START
    assert tokens.issue("ns", "web", "u1", seconds=60).expiration.timestamp() == START + 60


@pytest.mark.parametrize(
    ("token_for", "asked", "good"),
    [
        pytest.param(["api"], [], True, id="one of the server's own"),
        pytest.param(["vault"], [], False, id="another's"),
        pytest.param(["vault"], ["vault"], True, id="another's, asked for by a review"),
        pytest.param(["api"], ["vault"], False, id="the server's own when a review asks for another"),
    ],
)
def test_a_token_is_meant_for(tokens, token_for, asked, good):
    token = tokens.issue("ns", "web", "u1", audiences=token_for).token
    if good:
        tokens.verify(token, asked)
    else:
        assert refusal(tokens, token, asked) == "meant for another audience"


def confused_hs256() -> str:
    """The classic: our public key taken for an HMAC secret."""
    head = b64(json.dumps(HEADER | {"alg": "HS256"}).encode())
    text = f"{head}.{b64(json.dumps(CLAIMS).encode())}"
    secret = json.dumps(key_set(KEY.public_key())).encode()
    return f"{text}.{b64(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def with_other_s() -> str:
    head, claims, signature = signed(HEADER, CLAIMS).split(".")
    raw = unb64(signature)
    other = ec.SECP256R1().group_order - int.from_bytes(raw[32:])
    KEY.public_key().verify(  # a good signature by the book
        encode_dss_signature(int.from_bytes(raw[:32]), other), f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256())
    )
    return f"{head}.{claims}.{b64(raw[:32] + other.to_bytes(32))}"


STRANGER = ec.generate_private_key(ec.SECP256R1())
UNSIGNED = f"{b64(json.dumps(HEADER | {'alg': 'none'}).encode())}.{b64(json.dumps(CLAIMS).encode())}."


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        pytest.param("", "not three parts", id="nothing"),
        pytest.param("a.b", "not three parts", id="two parts"),
        pytest.param("a.b.c.d", "not three parts", id="four parts"),
        pytest.param("..", "its header cannot be read", id="dots"),
        pytest.param("é.é.é", "not ASCII", id="not ASCII"),
        pytest.param("\ud800.a.b", "not ASCII", id="half a character"),
        pytest.param("x" * (16 * 1024 + 1), "too long", id="too long"),
        pytest.param("x" * 1_000_000, "too long", id="a megabyte"),
        pytest.param(UNSIGNED, "not signed with ES256", id="alg none"),
        pytest.param(confused_hs256(), "not signed with ES256", id="alg HS256 with the public key"),
        pytest.param(signed(HEADER, CLAIMS, STRANGER), "its signature is wrong", id="somebody else's signature"),
        pytest.param(with_other_s(), "its signature is not the one we made", id="the same signature's twin"),
        pytest.param(
            signed(HEADER | {"kid": key_id(STRANGER.public_key())}, CLAIMS, STRANGER),
            "signed with a key that is not ours",
            id="somebody else's key, named",
        ),
        pytest.param(
            signed(HEADER | {"kid": "../../dev/null"}, CLAIMS), "signed with a key that is not ours", id="kid is a path"
        ),
        pytest.param(signed({"alg": "ES256"}, CLAIMS), "its header cannot be read", id="no kid"),
        pytest.param(
            signed(HEADER | {"jku": "https://evil.example.com"}, CLAIMS), "its header cannot be read", id="jku"
        ),
        pytest.param(signed(HEADER | {"crit": ["exp"]}, CLAIMS), "its header cannot be read", id="crit"),
        pytest.param(signed(HEADER | {"typ": "at+jwt"}, CLAIMS), "not a JWT", id="another type"),
        pytest.param(signed([1], CLAIMS), "its header cannot be read", id="the header is a list"),
        pytest.param(signed(HEADER, CLAIMS | {"iss": "https://other"}), "from another issuer", id="another issuer"),
        pytest.param(
            signed(HEADER, CLAIMS | {"sub": "system:serviceaccount:kube-system:admin"}),
            "its subject is not its service account",
            id="a subject that is not its account",
        ),
        pytest.param(
            signed(HEADER, {key: value for key, value in CLAIMS.items() if key != "exp"}),
            "its claims cannot be read",
            id="no end",
        ),
        pytest.param(signed(HEADER, CLAIMS | {"exp": "never"}), "its claims cannot be read", id="an end in words"),
        pytest.param(signed(HEADER, "claims"), "its claims cannot be read", id="the claims are a string"),
    ],
)
def test_a_token_is_refused_that_is(tokens, token, reason):
    assert refusal(tokens, token) == reason


GOOD = Tokens(KEY, ISSUER, [ISSUER], SetClock()).issue("ns", "web", "u1", pod=Named("p", "u")).token
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.= +/\n"


@given(st.integers(0, len(GOOD) - 1), st.sampled_from(ALPHABET))
def test_no_token_with_one_character_changed_passes(place, character):
    verifier = Tokens(KEY, ISSUER, [ISSUER], SetClock())
    changed = GOOD[:place] + character + GOOD[place + 1 :]
    if changed == GOOD:
        verifier.verify(changed)
    else:
        refusal(verifier, changed)


@given(st.integers(0, len(GOOD)), st.text(ALPHABET, min_size=1, max_size=4), st.booleans())
def test_no_token_with_something_put_in_or_cut_off_passes(place, text, cut):
    verifier = Tokens(KEY, ISSUER, [ISSUER], SetClock())
    verifier.verify(GOOD)  # a remembered signature vouches for no other token
    changed = GOOD[:place] if cut else GOOD[:place] + text + GOOD[place:]
    if changed != GOOD:
        refusal(verifier, changed)


@given(st.one_of(st.text(), st.lists(st.text(ALPHABET), min_size=3, max_size=3).map(".".join)))
def test_invalid_tokens_are_all_refused_alike(text):
    refusal(Tokens(KEY, ISSUER, [ISSUER], SetClock()), text)


@given(st.dictionaries(st.sampled_from(sorted(HEADER)), st.none() | st.integers() | st.text(max_size=5), min_size=1))
def test_no_header_but_ours_passes(change):
    header = HEADER | change
    if header != HEADER:
        refusal(Tokens(KEY, ISSUER, [ISSUER], SetClock()), signed(header, CLAIMS))


def test_a_signature_is_checked_once(tokens, monkeypatch):
    token = tokens.issue("ns", "web", "u1").token
    tokens.verify(token)
    monkeypatch.setattr(tokens._jws, "decode", lambda *_, **__: pytest.fail("checked again"))
    tokens.verify(token)


def test_only_so_many_signatures_are_remembered_the_oldest_use_goes_first(tokens, monkeypatch):
    monkeypatch.setattr(tokens_module, "VERIFIED_CACHE_SIZE", 3)
    made = [tokens.issue("ns", "web", "u1").token for _ in range(4)]
    for item in (made[0], made[1], made[2], made[0], made[3]):
        tokens.verify(item)
    assert len(tokens._verified) == 3
    assert hashlib.sha256(made[1].encode()).digest() not in tokens._verified


def test_refused_tokens_are_not_remembered(tokens):
    for number in range(10):
        refusal(tokens, signed(HEADER, CLAIMS | {"jti": str(number)}, STRANGER))
    assert not tokens._verified


def test_a_token_that_would_be_too_long_is_not_issued(tokens):
    with pytest.raises(ValueError, match="would be refused"):
        tokens.issue("ns", "web", "u1", audiences=["x" * 17_000])


def test_a_refusal_holds_nothing_of_the_token(tokens):
    token = signed(HEADER, CLAIMS, STRANGER)
    with pytest.raises(BadToken) as caught:
        tokens.verify(token)
    assert not any(part in repr(caught.value) for part in token.split("."))


def test_the_key_set_is_enough_to_verify_a_token(tokens):
    document = json.loads(msgspec.json.encode(key_set(KEY.public_key())))
    [key] = document["keys"]
    head, claims, signature = tokens.issue("ns", "web", "u1").token.split(".")
    assert (key["kid"], key["alg"], key["kty"], key["crv"]) == (json.loads(unb64(head))["kid"], "ES256", "EC", "P-256")
    x, y = (int.from_bytes(unb64(key[letter])) for letter in "xy")
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    r, s = (int.from_bytes(part) for part in (unb64(signature)[:32], unb64(signature)[32:]))
    public.verify(encode_dss_signature(r, s), f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))


def test_discovery_names_the_issuer_and_where_its_keys_are():
    assert discovery(ISSUER, f"{ISSUER}/openid/v1/jwks") == {
        "issuer": ISSUER,
        "jwks_uri": f"{ISSUER}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
