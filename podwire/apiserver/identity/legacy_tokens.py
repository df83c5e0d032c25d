"""Signs the tokens of Secrets of type kubernetes.io/service-account-token, in upstream's form.

The key is that of the API server, so that it accepts them: ours, or the file that a stock kube-apiserver also has.
"""

from pathlib import Path

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import Algorithm, ECAlgorithm, RSAAlgorithm

from podwire.apiserver.identity.tokens import ALGORITHM, LEGACY_ISSUER, CanonicalES256, LegacyClaims, key_id
from podwire.apiserver.identity.users import ACCOUNT_PREFIX

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_CURVES: dict[str, tuple[str, Algorithm]] = {
    ec.SECP256R1.name: (ALGORITHM, CanonicalES256(hashes.SHA256, ec.SECP256R1)),
    ec.SECP384R1.name: ("ES384", ECAlgorithm(hashes.SHA384, ec.SECP384R1)),
    ec.SECP521R1.name: ("ES512", ECAlgorithm(hashes.SHA512, ec.SECP521R1)),
}
"""The algorithm of each curve (RFC 7518, 3.4)."""


class BadKeyFile(ValueError):
    """A file without a private key that signs tokens; names the file."""


class LegacyTokenSigner:
    def __init__(self, key: Key) -> None:
        self._key = key
        self._name, algorithm = (
            ("RS256", RSAAlgorithm(RSAAlgorithm.SHA256))
            if isinstance(key, rsa.RSAPrivateKey)
            else _CURVES[key.curve.name]
        )
        self._kid = key_id(key.public_key())
        self._jws = jwt.PyJWS(algorithms=[])
        self._jws.register_algorithm(self._name, algorithm)

    def sign(self, namespace: str, name: str, uid: str, secret: str) -> str:
        """Returns a token for a service account that is valid as long as the Secret contains it."""
        claims = LegacyClaims(
            iss=LEGACY_ISSUER,
            sub=f"{ACCOUNT_PREFIX}{namespace}:{name}",
            namespace=namespace,
            secret=secret,
            name=name,
            uid=uid,
        )
        return self._jws.encode(msgspec.json.encode(claims), self._key, self._name, headers={"kid": self._kid})


def read_key(path: Path) -> Key:
    """Reads a private key, RSA or EC, in PEM. Raises OSError and BadKeyFile."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadKeyFile(f"{path}: cannot parse the private key: {error}") from error
    if isinstance(key, rsa.RSAPrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES
    ):
        return key
    raise BadKeyFile(f"{path}: must be an RSA key, or an EC key of the curve P-256, P-384 or P-521")
