"""Images that this kubelet pulled, and with which secrets: a pod gets a present image only if it could pull it itself.

Upstream's KubeletEnsureSecretPulledImages with the policy NeverVerifyPreloadedImages: an image that the kubelet did not
pull is for everyone; one that it pulled without a login or with a login of the node, too; one that it pulled with a
pull secret is for pods that have this secret, or one with the same login. Others pull it again.

A pull is noted before it begins: after a crash between the pull and its record, the image counts as pulled.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from podwire.durable.codecs import json_codec
from podwire.durable.files import Durability
from podwire.durable.records import Problem, Records

FORMAT = 1
MOST_SECRETS = 100
"""Secrets that are remembered for one image of a repository, the newest ones."""


class PullSecret(msgspec.Struct, frozen=True):
    """A Secret that has a login, and a digest of the login."""

    uid: str
    namespace: str
    name: str
    login: str

    def is_like(self, other: "PullSecret") -> bool:
        """Whether it is the same Secret, whatever its login is now, or one with the same login."""
        same = (self.uid, self.namespace, self.name) == (other.uid, other.namespace, other.name)
        return same or self.login == other.login


class Access(msgspec.Struct, frozen=True):
    everyone: bool = False
    secrets: tuple[PullSecret, ...] = ()


class PulledImage(msgspec.Struct, frozen=True):
    """By repository, who may use an image; `id` is the runtime's."""

    id: str
    repositories: dict[str, Access]


class PulledImages:
    """Methods that change something block, and can be called from several threads; `may_use` does not block."""

    def __init__(self, directory: Path, report: Callable[[Problem], None] | None = None) -> None:
        self._pulled = Records(directory / "pulled", json_codec(PulledImage), format=FORMAT, report=report)
        self._pulling = Records(directory / "pulling", json_codec(str), format=FORMAT, report=report)
        self._images: dict[str, PulledImage] = {}
        self._begun: Counter[str] = Counter()
        """Pulls in progress, by name."""
        self._interrupted: set[str] = set()
        """Names whose pull a crash interrupted."""
        self._lock = threading.Lock()

    def load(self) -> None:
        self._images = {image.id: image for image in self._pulled.load().values()}
        self._interrupted = set(self._pulling.load().values())

    def may_use(self, name: str, repository: str, id_: str, secrets: Sequence[PullSecret]) -> bool:
        """Whether a pod with these secrets gets the image that the runtime has under this name."""
        image = self._images.get(id_)
        if image is None:
            return not self._begun[name] and name not in self._interrupted
        access = image.repositories.get(repository, Access())
        return access.everyone or any(secret.is_like(other) for secret in secrets for other in access.secrets)

    def begin(self, name: str) -> None:
        """Notes that an image is about to be pulled."""
        with self._lock:
            self._begun[name] += 1
            if self._begun[name] == 1 and name not in self._interrupted:
                self._pulling.put(_key(name), name)

    def failed(self, name: str) -> None:
        with self._lock:
            self._end(name)

    def succeeded(self, name: str, repository: str, id_: str, secret: PullSecret | None) -> None:
        """Records that an image was pulled with a secret; without one, it is for everyone."""
        with self._lock:
            before = self._images.get(id_, PulledImage(id_, {}))
            access = before.repositories.get(repository, Access())
            if secret is None:
                access = Access(everyone=True)
            elif not access.everyone:
                others = [other for other in access.secrets if not other.is_like(secret)]
                access = Access(secrets=(*others[1 - MOST_SECRETS :], secret))
            image = PulledImage(id_, {**before.repositories, repository: access})
            if image != before:
                self._pulled.put(_key(id_), image)
                self._images[id_] = image
            self._interrupted.discard(name)
            self._end(name)

    def known(self) -> set[str]:
        return set(self._images)

    def prune(self, known: Collection[str], present: Collection[str]) -> None:
        """Forgets images that are gone. `known` were there before the runtime was asked what is `present`."""
        with self._lock:
            for id_ in set(known) - set(present):
                if self._images.pop(id_, None) is not None:
                    self._pulled.remove(_key(id_))

    def _end(self, name: str) -> None:
        self._begun[name] -= 1
        if self._begun[name] <= 0:
            del self._begun[name]
            if name not in self._interrupted:
                self._pulling.remove(_key(name), Durability.PROCESS_DEATH)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
