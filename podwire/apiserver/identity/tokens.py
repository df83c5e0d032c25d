"""Service-account tokens: JWTs (RFC 7519) that this server signs and verifies. PyJWT does the JWS part (RFC 7515).

    BadToken        the token is invalid or no longer valid; the reason is for the log, never for the caller
    TokenTooLong    the requested token would not be usable

We are the only issuer, so the verifier accepts less than the standard allows:

    algorithm   ES256 alone is registered with PyJWT, so `none` and HS256 with the public key cannot be chosen
    key         one; `kid` must be its fingerprint and is never looked up
    header      exactly alg, kid and typ (no jku, x5u, crit, b64)
    encoding    base64url in its one canonical spelling; of the two valid signatures (r, s) and (r, n - s) the lower s
    issuer      ours; or that of the tokens in Secrets (LegacyClaims), which are valid as long as their Secret and have
                no audience
    claims      iss, sub, the account and the times are checked here against the injected clock, not by PyJWT, which
                reads the wall clock itself

So two different strings are never the same valid token, and a cache keyed by the token's digest is exact.
"""

import base64
import binascii
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import jwt
import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm

from podwire.apiserver.identity.users import ACCOUNT_PREFIX
from podwire.interfaces import Clock

ALGORITHM = "ES256"
LONGEST_TOKEN = 16 * 1024
VERIFIED_CACHE_SIZE = 4096
"""Verified tokens in the cache; a kubelet and its pods send the same few tokens all day."""
TOLERATED_STEP = 300.0
"""A wall clock that is set back by up to this many seconds is not followed: expired tokens stay expired, new ones do
not become `not yet valid`. A larger step corrects a clock that was wrong before, and is followed."""

_ORDER = ec.SECP256R1().group_order
_T = TypeVar("_T")


class BadToken(Exception):
    """The reason why a token is invalid; the text never contains any part of the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TokenTooLong(ValueError):
    """The claims do not fit into a token; names the limit."""


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object that a token names, with its uid: a later object of the same name is another one."""

    name: str
    uid: str = ""


class Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `kubernetes.io` claim. A token bound to a pod names the pod's node too, which binds it no further."""

    namespace: str
    serviceaccount: Named
    pod: Named | None = None
    secret: Named | None = None
    node: Named | None = None


class Claims(msgspec.Struct, frozen=True, kw_only=True, rename={"private": "kubernetes.io"}):
    """The claims of a token."""

    aud: list[str]
    exp: int
    iat: int
    iss: str
    jti: str
    private: Private
    nbf: int
    sub: str

    @property
    def bound(self) -> tuple[str, Named] | None:
        """Kind and name of the object that the token is bound to: the token is invalid once that is deleted."""
        private = self.private
        for kind, named in (("Pod", private.pod), ("Secret", private.secret), ("Node", private.node)):
            if named is not None:
                return kind, named
        return None


LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY = "kubernetes.io/serviceaccount/"


class LegacyClaims(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "namespace": f"{_LEGACY}namespace",
        "secret": f"{_LEGACY}secret.name",
        "name": f"{_LEGACY}service-account.name",
        "uid": f"{_LEGACY}service-account.uid",
    },
):
    """The claims of a token in a Secret of type kubernetes.io/service-account-token."""

    iss: str
    namespace: str
    secret: str
    name: str
    uid: str
    sub: str


class _Issuer(msgspec.Struct, frozen=True):
    iss: str = ""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: str
    kid: str
    typ: str = "JWT"


class Issued(NamedTuple):
    token: str
    expiration: datetime


@dataclass(slots=True)
class _Now:
    """The wall clock without small steps backwards."""

    clock: Clock
    wall: float
    monotonic: float

    def __call__(self) -> float:
        monotonic, wall = self.clock.monotonic(), self.clock.wall()
        steady = self.wall + (monotonic - self.monotonic)
        if 0 < steady - wall <= TOLERATED_STEP:
            return steady
        self.wall, self.monotonic = wall, monotonic
        return wall


class Tokens:
    """Issues and verifies tokens. `audiences` are the server's own, of which a token must name at least one."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, issuer: str, audiences: Sequence[str], clock: Clock) -> None:
        self.issuer = issuer
        self.audiences = tuple(audiences) or (issuer,)
        self._key = key
        self._public = key.public_key()
        self._kid = key_id(self._public)
        self._jws = jwt.PyJWS(algorithms=[])
        self._jws.register_algorithm(ALGORITHM, CanonicalES256(hashes.SHA256, ec.SECP256R1))
        self._now = _Now(clock, clock.wall(), clock.monotonic())
        self._verified: OrderedDict[bytes, Claims | LegacyClaims] = OrderedDict()
        self._issuers = msgspec.json.Decoder(_Issuer)
        self._legacy = msgspec.json.Decoder(LegacyClaims)
        self._claims = msgspec.json.Decoder(Claims)
        self._headers = msgspec.json.Decoder(_Header)

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        audiences: Sequence[str] = (),
        seconds: int = 3600,
        pod: Named | None = None,
        secret: Named | None = None,
        node: Named | None = None,
    ) -> Issued:
        """A token for the service account, bound to the pod, secret or node; good for the server itself by default."""
        now = int(self._now())
        claims = Claims(
            aud=list(audiences or self.audiences),
            exp=now + seconds,
            iat=now,
            nbf=now,
            iss=self.issuer,
            jti=str(uuid.uuid4()),
            sub=f"{ACCOUNT_PREFIX}{namespace}:{name}",
            private=Private(namespace, Named(name, uid), pod, secret, node),
        )
        token = self._jws.encode(msgspec.json.encode(claims), self._key, ALGORITHM, headers={"kid": self._kid})
        if len(token) > LONGEST_TOKEN:
            raise TokenTooLong(f"a token of {len(token)} bytes would be refused; {LONGEST_TOKEN} are possible")
        return Issued(token, datetime.fromtimestamp(claims.exp, UTC))

    def verify(self, token: str, audiences: Collection[str] = ()) -> Claims | LegacyClaims:
        """Returns the claims of a token that we signed, valid now, for one of `audiences` (default: the server's own).

        Raises BadToken. The caller checks whether the account and the bound object still exist, and whether a token of
        a Secret is still the one in it. Such a token is meant for the server.
        """
        if len(token) > LONGEST_TOKEN:
            raise BadToken("too long")
        claims = self._trusted(token)
        if isinstance(claims, LegacyClaims):
            if not set(self.audiences).intersection(audiences or self.audiences):
                raise BadToken("meant for another audience")
            return claims
        now = self._now()
        if now >= claims.exp:
            raise BadToken("expired")
        if now < claims.nbf:
            raise BadToken("not yet valid")
        if not set(claims.aud).intersection(audiences or self.audiences):
            raise BadToken("meant for another audience")
        return claims

    def _trusted(self, token: str) -> Claims | LegacyClaims:
        """Returns the claims of a token that we signed; each token's signature is verified once."""
        try:
            raw = token.encode("ascii")
        except UnicodeEncodeError:
            raise BadToken("not ASCII") from None
        digest = hashlib.sha256(raw).digest()
        claims = self._verified.get(digest)
        if claims is not None:
            self._verified.move_to_end(digest)
            return claims
        claims = self._read(raw)
        self._verified[digest] = claims
        if len(self._verified) > VERIFIED_CACHE_SIZE:
            self._verified.popitem(last=False)
        return claims

    def _read(self, raw: bytes) -> Claims | LegacyClaims:
        parts = raw.split(b".")
        if len(parts) != 3:
            raise BadToken("not three parts")
        header = _parsed(self._headers, parts[0], "header")
        if header.alg != ALGORITHM:
            raise BadToken("not signed with ES256")
        if header.kid != self._kid:
            raise BadToken("signed with a key that is not ours")
        if header.typ != "JWT":
            raise BadToken("not a JWT")
        _decoded(parts[2])
        try:
            self._jws.decode(raw, self._public, algorithms=[ALGORITHM])
        except jwt.InvalidTokenError:
            raise BadToken("its signature is wrong") from None
        if _parsed(self._issuers, parts[1], "claims").iss == LEGACY_ISSUER:
            return self._read_legacy(parts[1])
        claims = _parsed(self._claims, parts[1], "claims")
        account = claims.private
        if claims.iss != self.issuer:
            raise BadToken("from another issuer")
        if claims.sub != f"{ACCOUNT_PREFIX}{account.namespace}:{account.serviceaccount.name}":
            raise BadToken("its subject is not its service account")
        return claims

    def _read_legacy(self, part: bytes) -> LegacyClaims:
        claims = _parsed(self._legacy, part, "claims")
        if not (claims.namespace and claims.secret and claims.name and claims.uid):
            raise BadToken("its claims cannot be read")
        if claims.sub != f"{ACCOUNT_PREFIX}{claims.namespace}:{claims.name}":
            raise BadToken("its subject is not its service account")
        return claims


class CanonicalES256(ECAlgorithm):
    """ES256 (RFC 7518, 3.4) with one valid signature per message and key: the one with the lower s."""

    def sign(self, msg: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
        signature = super().sign(msg, key)
        s = int.from_bytes(signature[32:])
        return signature[:32] + min(s, _ORDER - s).to_bytes(32)

    def verify(self, msg: bytes, key: ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey, sig: bytes) -> bool:
        if len(sig) != 64:
            raise BadToken("its signature is not 64 bytes")
        if int.from_bytes(sig[32:]) > _ORDER // 2:
            raise BadToken("its signature is not the one we made")
        return super().verify(msg, key, sig)


def key_id(public: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> str:
    """Returns the fingerprint that names a key in a token's header and in the key set."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _encoded(hashlib.sha256(der).digest()).decode()


def key_set(public: ec.EllipticCurvePublicKey) -> Mapping[str, Any]:
    """Returns the JWKS document with which others verify our tokens (RFC 7517)."""
    jwk = ECAlgorithm.to_jwk(public, as_dict=True)
    return {"keys": [{"use": "sig", "kid": key_id(public), "alg": ALGORITHM, **jwk}]}


def discovery(issuer: str, key_set_url: str) -> Mapping[str, Any]:
    """The OpenID discovery document of the issuer."""
    return {
        "issuer": issuer,
        "jwks_uri": key_set_url,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }


def _parsed(decoder: msgspec.json.Decoder[_T], part: bytes, what: str) -> _T:
    try:
        return decoder.decode(_decoded(part))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadToken(f"its {what} cannot be read") from None


def _encoded(data: bytes) -> bytes:
    """Base64url without padding (RFC 7515, appendix C)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(part: bytes) -> bytes:
    """Returns the bytes of a part; refuses spellings that a lenient decoder accepts (stray characters, spare bits)."""
    try:
        data = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        raise BadToken("not base64url") from None
    if _encoded(data) != part:
        raise BadToken("not base64url")
    return data
