"""Platforms: which images of an index this machine can run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

_ARCHITECTURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "x86_64": ("amd64", ("", "v1")),
    "aarch64": ("arm64", ("v8", "")),
    "armv7l": ("arm", ("v7", "v6", "v5", "")),
    "armv6l": ("arm", ("v6", "v5", "")),
    "ppc64le": ("ppc64le", ("",)),
    "s390x": ("s390x", ("",)),
    "riscv64": ("riscv64", ("",)),
    "i686": ("386", ("",)),
}
"""The kernel's name to OCI's, and the variants that run, best first."""


@dataclass(frozen=True, slots=True)
class Platform:
    os: str = ""
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@dataclass(frozen=True, slots=True)
class Machine:
    """The platform of this machine."""

    architecture: str
    variants: tuple[str, ...] = ("",)

    def __str__(self) -> str:
        return f"linux/{self.architecture}"

    def rank(self, offered: Platform) -> int | None:
        """Returns how well an image suits, 0 best; None when it cannot run here."""
        if (offered.os, offered.architecture) != ("linux", self.architecture) or offered.variant not in self.variants:
            return None
        return self.variants.index(offered.variant)


def this_machine() -> Machine:
    name = os.uname().machine
    return Machine(*_ARCHITECTURES.get(name, (name, ("",))))
