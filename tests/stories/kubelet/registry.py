"""A private registry on loopback of a node: Debian's docker-registry with a password."""

import json
import os
import subprocess

from podwire.runtime.images import build
from tests.eventually import eventually

HOST = "127.0.0.1:5000"
HASHED = "ann:$2b$05$CEpWAce67WKsPPDzccrUKupBzhIRrGRQoyB9ZjAroUwlFXO5vn9u."
"""The password `secret`, as docker-registry wants it."""


class Registry:
    """docker-registry in the node's namespaces."""

    def __init__(self, node) -> None:
        directory = node.prefix / "registry"
        directory.mkdir()
        (directory / "users").write_text(HASHED + "\n")
        config = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
            "http": {"addr": HOST},
            "auth": {"htpasswd": {"realm": "story", "path": str(directory / "users")}},
        }
        (directory / "config.yml").write_text(json.dumps(config))
        self._space = node.space
        words = self._space.command("docker-registry", "serve", directory / "config.yml")
        with (directory / "log").open("wb") as log:
            self.child = subprocess.Popen(words, stdout=log, stderr=log)
        asks = self._space.command("sh", "-c", f"echo | busybox nc -w 1 {HOST.replace(':', ' ')}")
        eventually(lambda: subprocess.run(asks, capture_output=True, check=False).returncode == 0, 20)
        self._archive = directory / "busybox.tar"

    def stop(self) -> None:
        self.child.kill()
        self.child.wait()

    def push(self, *repositories: str, size: int = 0) -> None:
        """Pushes an image for each repository, no two the same."""
        for repository in repositories:
            self._archive.unlink(missing_ok=True)
            more = {"/filler": os.urandom(size)} if size else {}
            build.archive_root(self._archive, "x.test/x:1", build.BUSYBOX, ["sh", "-l", repository], more)
            words = ["skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "--dest-creds", "ann:secret"]
            self._space.output(*words, f"oci-archive:{self._archive}", f"docker://{HOST}/{repository}:1")
