"""DaemonSets of `podwire manifests`, run from the host's own files in the place of an image."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from podwire.runtime.images.build import ROOT_REFERENCE

PODWIRE = Path(sys.executable).with_name("podwire")
PROJECT = Path(__file__).parents[3]


def printed(component: str, kubeconfig: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the manifests of a component: all but the DaemonSet, and the DaemonSet with its program from the host."""
    done = subprocess.run(
        [PODWIRE, "manifests", component, "--kubeconfig", kubeconfig], capture_output=True, text=True, check=True
    )
    manifests = list(yaml.safe_load_all(done.stdout))
    [daemon_set] = [manifest for manifest in manifests if manifest["kind"] == "DaemonSet"]
    spec = daemon_set["spec"]["template"]["spec"]
    spec["automountServiceAccountToken"] = False
    [container] = spec["containers"]
    container |= {"image": ROOT_REFERENCE, "command": [sys.executable, str(PODWIRE), component]}
    for index, (inside, path) in enumerate(_host_directories().items()):
        volume = f"host-{index}"
        spec["volumes"].append({"name": volume, "hostPath": {"path": path}})
        container["volumeMounts"].append({"name": volume, "mountPath": inside, "readOnly": True})
    return [manifest for manifest in manifests if manifest is not daemon_set], daemon_set


def _host_directories() -> dict[str, str]:
    """Returns where this interpreter and podwire are, by their path in the pod."""
    directories = {"/usr": "/usr", "/lib": "/usr/lib", "/lib64": "/usr/lib64", str(PROJECT): str(PROJECT)}
    for prefix in (sys.prefix, sys.base_prefix):
        if not any(Path(prefix).is_relative_to(directory) for directory in directories):
            directories[prefix] = prefix
    return directories
