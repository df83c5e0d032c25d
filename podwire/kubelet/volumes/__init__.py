"""Volumes of pods: emptyDir, hostPath, configMap, secret, downwardAPI, projected, and persistent ones.

Other types are rejected.
"""

from podwire.kubelet.volumes.errors import VolumesNotReady
from podwire.kubelet.volumes.manager import VolumeManager

__all__ = ["VolumeManager", "VolumesNotReady"]
