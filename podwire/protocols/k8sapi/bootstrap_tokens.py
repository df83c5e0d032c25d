"""Bootstrap tokens: how a machine that knows no certificate of a cluster finds it, and proves that it may join. Pure.

A token `ID.SECRET` is a Secret `kube-system/bootstrap-token-ID`. It has two uses, which the Secret allows or not:
authentication, as the user `system:bootstrap:ID`; and signing of the ConfigMap `kube-public/cluster-info`, which
anybody may read, so that a machine with the token can tell that the cluster's address and CA in it are genuine. A hash
of the CA's public key proves the same, even if the token is known to others. Names and formats are upstream's: kubeadm
and stock kubelets use the same tokens.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.codec import BadBody
from podwire.protocols.k8sapi.yamls import load_all

TYPE = "bootstrap.kubernetes.io/token"
NAMESPACE = "kube-system"
NAME_PREFIX = "bootstrap-token-"
USER_PREFIX = "system:bootstrap:"
GROUP = "system:bootstrappers"
NODES_GROUP = f"{GROUP}:kubeadm:default-node-token"
"""The group of machines that join as nodes."""
USAGES = ("authentication", "signing")

INFO_NAMESPACE, INFO_NAME = "kube-public", "cluster-info"
KUBECONFIG_KEY = "kubeconfig"
SIGNATURE_PREFIX = "jws-kubeconfig-"
HASH_PREFIX = "sha256:"

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_EXTRA_GROUP = re.compile(rf"{GROUP}:[a-z0-9:-]{{0,255}}[a-z0-9]")


class BadToken(ValueError):
    """Says what is wrong with a token, its Secret, or what was signed with it."""


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    secret: str

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.id!r})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadToken."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            raise BadToken("a bootstrap token is six characters, a dot and sixteen characters, of a-z and 0-9")
        return cls(match[1], match[2])

    @classmethod
    def random(cls) -> Self:
        first, second = ("".join(secrets.choice(_ALPHABET) for _ in range(length)) for length in (6, 16))
        return cls(first, second)

    @property
    def secret_name(self) -> str:
        return f"{NAME_PREFIX}{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token as its Secret describes it."""

    token: Token
    usages: tuple[str, ...] = USAGES
    groups: tuple[str, ...] = (NODES_GROUP,)
    description: str = ""
    expires: float | None = None
    """Seconds since the epoch; None: never."""

    def is_expired(self, now: float) -> bool:
        return self.expires is not None and self.expires <= now


def secret_of(record: TokenRecord) -> dict[str, Any]:
    """Returns the Secret of a token."""
    for group in record.groups:
        if not _EXTRA_GROUP.fullmatch(group):
            raise BadToken(f'group "{group}" must begin with "{GROUP}:" and have only a-z, 0-9, ":" and "-"')
    if wrong := set(record.usages).difference(USAGES):
        raise BadToken(f'usage "{min(wrong)}" must be one of {", ".join(USAGES)}')
    texts = {
        "token-id": record.token.id,
        "token-secret": record.token.secret,
        **{f"usage-bootstrap-{usage}": "true" for usage in record.usages},
    }
    if record.groups:
        texts["auth-extra-groups"] = ",".join(record.groups)
    if record.description:
        texts["description"] = record.description
    if record.expires is not None:
        texts["expiration"] = rfc3339(record.expires)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": record.token.secret_name, "namespace": NAMESPACE},
        "type": TYPE,
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()},
    }


def read_secret(secret: Mapping[str, Any]) -> TokenRecord:
    """Reads the Secret of a token. Raises BadToken."""
    name = secret["metadata"].get("name", "")
    if secret.get("type") != TYPE:
        raise BadToken(f"Secret {name} is not of type {TYPE}")
    data = {key: _text(value, key) for key, value in (secret.get("data") or {}).items()}
    token = Token.parse(f"{data.get('token-id', '')}.{data.get('token-secret', '')}")
    if name != token.secret_name:
        raise BadToken(f"Secret {name} has the token-id of {token.secret_name}")
    groups = tuple(group for group in data.get("auth-extra-groups", "").split(",") if group)
    if wrong := [group for group in groups if not _EXTRA_GROUP.fullmatch(group)]:
        raise BadToken(f'Secret {name}: auth-extra-groups has "{wrong[0]}", which does not begin with "{GROUP}:"')
    expires = None
    if data.get("expiration"):
        try:
            expires = parse(data["expiration"])
        except ValueError as error:
            raise BadToken(f"Secret {name}: expiration: {error}") from error
    return TokenRecord(
        token=token,
        usages=tuple(usage for usage in USAGES if data.get(f"usage-bootstrap-{usage}") == "true"),
        groups=groups,
        description=data.get("description", ""),
        expires=expires,
    )


def _text(value: object, key: str) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise BadToken(f"{key} is not base64 of a text") from error


def sign(content: str, token: Token) -> str:
    """Returns a detached JWS (RFC 7515, appendix F) of a text: header, no payload, signature."""
    header = _encoded(json.dumps({"alg": "HS256", "kid": token.id}, separators=(",", ":")).encode())
    return f"{header}..{_mac(header, content, token)}"


def is_signed(content: str, signature: str, token: Token) -> bool:
    """Returns whether a detached JWS of a text was made with a token."""
    header, separator, mac = signature.partition("..")
    try:
        fields = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except ValueError:
        return False
    if not separator or not isinstance(fields, dict) or (fields.get("alg"), fields.get("kid")) != ("HS256", token.id):
        return False
    return hmac.compare_digest(mac.encode(), _mac(header, content, token).encode())


def _mac(header: str, content: str, token: Token) -> str:
    signed = f"{header}.{_encoded(content.encode())}".encode()
    return _encoded(hmac.new(token.secret.encode(), signed, hashlib.sha256).digest())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_info(data: Mapping[str, str], tokens: Iterable[TokenRecord]) -> dict[str, str]:
    """Returns the data of `cluster-info` with a signature for each of these tokens, and none for others."""
    content = data.get(KUBECONFIG_KEY, "")
    others = {key: value for key, value in data.items() if not key.startswith(SIGNATURE_PREFIX)}
    signatures = {f"{SIGNATURE_PREFIX}{record.token.id}": sign(content, record.token) for record in tokens}
    return {**others, **signatures}


def verified_kubeconfig(data: Mapping[str, str], token: Token) -> str:
    """Returns the kubeconfig of `cluster-info`, if it was signed with a token. Raises BadToken."""
    content, signature = data.get(KUBECONFIG_KEY, ""), data.get(f"{SIGNATURE_PREFIX}{token.id}", "")
    if not content:
        raise BadToken(f"the ConfigMap {INFO_NAMESPACE}/{INFO_NAME} has no {KUBECONFIG_KEY}")
    if not signature:
        raise BadToken(f"token {token.id} does not exist, has expired, or does not have the usage signing")
    if not is_signed(content, signature, token):
        raise BadToken(f"the signature of {INFO_NAMESPACE}/{INFO_NAME} does not belong to token {token.id}")
    return content


def cluster_info(server: str, ca: str) -> str:
    """Returns the kubeconfig of `cluster-info`, in kubeadm's form: one cluster without a name, and no user."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca.encode()).decode()}
    empty: dict[str, Any] = {"contexts": None, "current-context": "", "preferences": {}, "users": None}
    config = {"apiVersion": "v1", "clusters": [{"cluster": cluster, "name": ""}], "kind": "Config", **empty}
    return json.dumps(config, indent=2) + "\n"


def authority_of(content: str) -> str:
    """Returns the CA in the kubeconfig of `cluster-info`, in PEM. Raises BadToken."""
    return _text(_of_cluster(content, "certificate-authority-data"), "certificate-authority-data")


def server_of(content: str) -> str:
    """Returns the server in the kubeconfig of `cluster-info`. Raises BadToken."""
    return _of_cluster(content, "server")


def _of_cluster(content: str, field: str) -> str:
    try:
        (config,) = load_all(content)
        return str(config["clusters"][0]["cluster"][field])
    except (BadBody, ValueError, LookupError, TypeError) as error:
        raise BadToken(f"the {KUBECONFIG_KEY} of {INFO_NAMESPACE}/{INFO_NAME} has no {field}") from error


def ca_cert_hash(certificate: x509.Certificate) -> str:
    """Returns the hash of a CA's public key (SubjectPublicKeyInfo), as kubeadm prints it."""
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return HASH_PREFIX + hashlib.sha256(info).hexdigest()


def check_ca_hash(text: str) -> str:
    """Returns a hash in lower case. Raises ValueError."""
    if not re.fullmatch(rf"{HASH_PREFIX}[0-9a-fA-F]{{64}}", text):
        raise ValueError(f"{text!r} must be {HASH_PREFIX} and 64 hexadecimal digits")
    return text.lower()


def matching_authorities(pem: str, hashes: Iterable[str]) -> list[x509.Certificate]:
    """Returns the certificates of a bundle whose public key has one of these hashes. Raises BadToken."""
    wanted = set(hashes)
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise BadToken(f"the CA of the cluster cannot be read: {error}") from error
    return [certificate for certificate in certificates if ca_cert_hash(certificate) in wanted]
