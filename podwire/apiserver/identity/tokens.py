"""Service-account tokens: JWTs signed by our own key, and nothing else that a JWT can be.

    BadToken        the token is not (or no longer) good; says why, for the log and never for the caller
    TokenTooLong    the token that is asked for could not be used

The general JWT libraries earn their size by the choices they offer (algorithms, key lookups, lax decoding), and those
choices are the known holes. We are the only issuer, so a token has one algorithm (ES256), one key (named by its
fingerprint, never looked up), one spelling of base64 and of the signature, and a header that asks for nothing more.
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

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from podwire.apiserver.identity.users import ACCOUNT_PREFIX
from podwire.interfaces import Clock

ALGORITHM = "ES256"
LONGEST_TOKEN = 16 * 1024
VERIFIED_KEPT = 4096
"""Signatures that are remembered as good; a kubelet and its pods send the same few tokens all day."""
RIDDEN_OUT = 300.0
"""A wall clock set back by up to this many seconds is not followed: no expired token comes back to life, no fresh one
turns `not yet valid`. One set back further was wrong before, and is believed."""

_ORDER = ec.SECP256R1().group_order
_T = TypeVar("_T")


class BadToken(Exception):
    """Why a token is refused; the text never holds any of the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TokenTooLong(ValueError):
    """What a token is to say does not fit into one; says how much does."""


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object that a token names, with the uid that tells it from a later one of the same name."""

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
    """What a token says."""

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
        """The kind and name of the object without which the token is worth nothing."""
        private = self.private
        for kind, named in (("Pod", private.pod), ("Secret", private.secret), ("Node", private.node)):
            if named is not None:
                return kind, named
        return None


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: str
    kid: str
    typ: str = "JWT"


class Issued(NamedTuple):
    token: str
    expiration: datetime


@dataclass(slots=True)
class _Now:
    """The wall clock, without its small steps back."""

    clock: Clock
    wall: float
    monotonic: float

    def __call__(self) -> float:
        monotonic, wall = self.clock.monotonic(), self.clock.wall()
        steady = self.wall + (monotonic - self.monotonic)
        if 0 < steady - wall <= RIDDEN_OUT:
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
        self._head = _encoded(msgspec.json.encode(_Header(alg=ALGORITHM, kid=self._kid)))
        self._now = _Now(clock, clock.wall(), clock.monotonic())
        self._verified: OrderedDict[bytes, Claims] = OrderedDict()
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
        signed = b".".join((self._head, _encoded(msgspec.json.encode(claims))))
        token = b".".join((signed, _encoded(_signature(self._key, signed))))
        if len(token) > LONGEST_TOKEN:
            raise TokenTooLong(f"a token of {len(token)} bytes would be refused; {LONGEST_TOKEN} are possible")
        return Issued(token.decode(), datetime.fromtimestamp(claims.exp, UTC))

    def verify(self, token: str, audiences: Collection[str] = ()) -> Claims:
        """What the token says, if it is ours, is good now, and is meant for one of `audiences` (else the server's).

        Raises BadToken. Whether the account and the bound object still exist is not known here.
        """
        if len(token) > LONGEST_TOKEN:
            raise BadToken("too long")
        claims = self._trusted(token)
        now = self._now()
        if now >= claims.exp:
            raise BadToken("expired")
        if now < claims.nbf:
            raise BadToken("not yet valid")
        if not set(claims.aud).intersection(audiences or self.audiences):
            raise BadToken("meant for another audience")
        return claims

    def _trusted(self, token: str) -> Claims:
        """The claims of a token that we signed; a signature is checked once, and remembered by the token's digest."""
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
        if len(self._verified) > VERIFIED_KEPT:
            self._verified.popitem(last=False)
        return claims

    def _read(self, raw: bytes) -> Claims:
        head, payload, signature = _parts(raw)
        header = _parsed(self._headers, head, "header")
        if header.alg != ALGORITHM:
            raise BadToken("not signed with ES256")
        if header.kid != self._kid:
            raise BadToken("signed with a key that is not ours")
        if header.typ != "JWT":
            raise BadToken("not a JWT")
        _check_signature(self._public, b".".join((head, payload)), _decoded(signature))
        claims = _parsed(self._claims, payload, "claims")
        account = claims.private
        if claims.iss != self.issuer:
            raise BadToken("from another issuer")
        if claims.sub != f"{ACCOUNT_PREFIX}{account.namespace}:{account.serviceaccount.name}":
            raise BadToken("its subject is not its service account")
        return claims


def key_id(public: ec.EllipticCurvePublicKey) -> str:
    """The fingerprint that names a key in a token's header and in the key set."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _encoded(hashlib.sha256(der).digest()).decode()


def key_set(public: ec.EllipticCurvePublicKey) -> Mapping[str, Any]:
    """The JWKS document: what others need to verify our tokens (RFC 7517)."""
    numbers = public.public_numbers()
    return {
        "keys": [
            {
                "use": "sig",
                "kty": "EC",
                "kid": key_id(public),
                "crv": "P-256",
                "alg": ALGORITHM,
                "x": _encoded(numbers.x.to_bytes(32)).decode(),
                "y": _encoded(numbers.y.to_bytes(32)).decode(),
            }
        ]
    }


def discovery(issuer: str, key_set_url: str) -> Mapping[str, Any]:
    """The OpenID discovery document of the issuer."""
    return {
        "issuer": issuer,
        "jwks_uri": key_set_url,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }


def _parts(raw: bytes) -> tuple[bytes, bytes, bytes]:
    parts = raw.split(b".")
    if len(parts) != 3:
        raise BadToken("not three parts")
    return parts[0], parts[1], parts[2]


def _parsed(decoder: msgspec.json.Decoder[_T], part: bytes, what: str) -> _T:
    try:
        return decoder.decode(_decoded(part))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadToken(f"its {what} cannot be read") from None


def _encoded(data: bytes) -> bytes:
    """Base64url without padding (RFC 7515, appendix C)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(part: bytes) -> bytes:
    """The bytes of a part in its one spelling: the decoder alone would pass stray characters and spare bits."""
    try:
        data = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        raise BadToken("not base64url") from None
    if _encoded(data) != part:
        raise BadToken("not base64url")
    return data


def _signature(key: ec.EllipticCurvePrivateKey, signed: bytes) -> bytes:
    """As JWTs carry it: r and s, 32 bytes each (RFC 7518, 3.4); of the two s that would do, the lower."""
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32) + min(s, _ORDER - s).to_bytes(32)


def _check_signature(public: ec.EllipticCurvePublicKey, signed: bytes, signature: bytes) -> None:
    if len(signature) != 64:
        raise BadToken("its signature is not 64 bytes")
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    if s > _ORDER // 2:
        raise BadToken("its signature is not the one we made")
    try:
        public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise BadToken("its signature is wrong") from None
