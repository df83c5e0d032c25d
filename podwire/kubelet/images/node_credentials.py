"""Logins of the node for all of its pods: Docker's files and credential providers, after a pod's pull secrets."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.images.credential_providers import CredentialProviders, Logins
from podwire.kubelet.images.credentials import auth_configs
from podwire.linux.errors import NoSuchPath
from podwire.linux.fs.regular_files import read_head
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.distribution import docker_config

log = logging.getLogger(__name__)

LONGEST = 1 << 20
"""Bytes of one file."""


def docker_files(root: Path, home: Path) -> tuple[Path, ...]:
    """Returns where upstream's kubelet looks, the first one that exists counts; `.dockercfg` is the old format."""
    names = (root / "config.json", home / ".docker/config.json", Path("/.docker/config.json"))
    return (*names, root / ".dockercfg", home / ".dockercfg", Path("/.dockercfg"))


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    files: Sequence[Path] = ()
    providers: CredentialProviders | None = None

    async def __call__(self, repository: str) -> list[pb.AuthConfig]:
        """Returns the logins for a repository, the most specific first. Files are read for each pull."""
        result: list[pb.AuthConfig] = []
        if self.files:
            result += self._matching(repository, await asyncio.to_thread(self._from_files))
        if self.providers is not None:
            result += self._matching(repository, await self.providers.logins(repository))
        return result

    def _matching(self, repository: str, logins: Logins) -> list[pb.AuthConfig]:
        try:
            return auth_configs(docker_config.matching(repository, logins))
        except docker_config.BadConfig as error:
            log.warning("ignored damaged login of node", extra={"image": repository, "error": str(error)})
            return []

    def _from_files(self) -> Logins:
        for path in self.files:
            try:
                data = read_head(path, LONGEST + 1, follow=True)
                if len(data) > LONGEST:
                    raise docker_config.BadConfig(f"has more than {LONGEST} bytes")
                parse = docker_config.parse_old_config if path.name == ".dockercfg" else docker_config.parse_config
                return list(parse(data).items())
            except NoSuchPath:
                continue
            except (OSError, docker_config.BadConfig) as error:
                log.warning("cannot read logins of node", extra={"file": str(path), "error": str(error)})
        return []
