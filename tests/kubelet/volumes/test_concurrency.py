"""Pods whose volumes are made at the same moment: the memory for secrets is mounted once, by the first of them."""

import threading
import time

from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.setup import VolumeSetup
from podwire.kubelet.volumes.steps import Files


class Slow:
    """A kernel that takes its time to say what is mounted; everybody asks meanwhile."""

    def __init__(self):
        self.mounted = []

    def is_mounted(self, target):
        found = target in self.mounted
        time.sleep(0.1)
        return found

    def mount(self, source, target, kind, options=()):
        self.mounted.append(target)


def test_concurrent_pods_share_one_mount(tmp_path):
    places, kernel = VolumePaths(tmp_path), Slow()
    work = VolumeSetup(places, kernel)
    failures = []

    def make(uid):
        step = Files(volume="s", directory=places.pod_secrets(uid) / "s", contents={}, group=None, in_memory=True)
        failures.extend(work.apply(uid, [step]))

    threads = [threading.Thread(target=make, args=(uid,)) for uid in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, kernel.mounted) == ([], [places.secrets])
