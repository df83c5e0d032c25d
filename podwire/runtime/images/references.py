"""Image references: `busybox` is `docker.io/library/busybox:latest`, as every client of a runtime expects."""

import re
from dataclasses import dataclass

from podwire.runtime.images.errors import BadReference

DEFAULT_DOMAIN, DEFAULT_NAMESPACE, DEFAULT_TAG = "docker.io", "library/", "latest"
_LEGACY_DOMAIN = "index.docker.io"

_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{64}")
LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository, and a tag or a digest in it."""

    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def parse(text: str) -> Reference:
    """The whole form of a reference; a digest beats a tag. Raises BadReference."""
    name, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise BadReference(text, "what follows @ is not a sha256: digest")
    repository, tag = _split_tag(name)
    if tag is not None and not _TAG.fullmatch(tag):
        raise BadReference(text, "the tag is not of letters, digits, '_', '.' and '-', at most 128")
    return Reference(_repository(text, repository), "" if digest else tag or DEFAULT_TAG, digest)


def _split_tag(name: str) -> tuple[str, str | None]:
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a port
        return name, None
    return repository, tag


def repository(text: str) -> str:
    """The whole form of a repository's name, which has neither tag nor digest. Raises BadReference."""
    return _repository(text, text)


def has_tag_or_digest(text: str) -> bool:
    return "@" in text or _split_tag(text)[1] is not None


def _repository(text: str, name: str) -> str:
    if _HEX.fullmatch(name):
        raise BadReference(text, "64 hexadecimal digits are an id, not a name")
    domain, path = _split_domain(name)
    if not _DOMAIN.fullmatch(domain):
        raise BadReference(text, f"{domain!r} is not a registry's host[:port]")
    if not _PATH.fullmatch(path):
        raise BadReference(text, "a name is of lower-case letters and digits, joined by '.', '_', '__', '-' and '/'")
    whole = f"{domain}/{path}"
    if len(whole) > LONGEST_NAME:
        raise BadReference(text, f"the name has more than {LONGEST_NAME} characters")
    return whole


def _split_domain(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and (any(letter in first for letter in ".:") or first == "localhost" or first != first.lower()):
        domain, path = first, rest
    else:
        domain, path = DEFAULT_DOMAIN, name
    if domain == _LEGACY_DOMAIN:
        domain = DEFAULT_DOMAIN
    if domain == DEFAULT_DOMAIN and "/" not in path:
        path = DEFAULT_NAMESPACE + path
    return domain, path
