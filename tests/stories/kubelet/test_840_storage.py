"""Persistent, CSI and image volumes on a real node. The CSI driver runs as a pod of a DaemonSet."""

import json
import sys
from pathlib import Path

import pytest

from tests.stories.kubelet.support import IMAGE

REPOSITORY = Path(__file__).parents[3]
DRIVER = "dir.csi.example"
PRIVILEGED = {"privileged": True}


@pytest.fixture(scope="module")
def node(running, template):
    """The kubelet's directory is a shared mount, as on most machines: mounts of a driver in a pod reach the node."""

    def prepare(made):
        made.root.mkdir(parents=True)
        made.space.output("mount", "--bind", made.root, made.root)
        made.space.output("mount", "--make-shared", made.root)

    with running(template, prepare=prepare) as made:
        yield made
        made("delete daemonsets,pods --all --grace-period=1 --wait=true")
        made.eventually(lambda: set(made.left()) <= {str(made.root)}, made.left)
        made.space.output("umount", "-l", made.root)


def host(name, path, **mount):
    volume = {"name": name, "hostPath": {"path": str(path)}}
    return volume, {"name": name, "mountPath": str(path), **mount}


def daemon_set(node):
    """The driver as vendors ship theirs: privileged, with the kubelet's directory in both directions. Its Python is the
    node's."""
    state = node.prefix / "csi"
    state.mkdir(exist_ok=True)
    shared = {"mountPropagation": "Bidirectional"}
    prefixes = {Path(sys.prefix), Path(sys.base_prefix)}
    paths = [Path("/usr"), Path("/lib"), Path("/lib64"), REPOSITORY, *prefixes]
    paths = [path for path in dict.fromkeys(paths) if path.is_dir()]
    volumes, mounts = zip(
        *(host(f"h{number}", path, readOnly=True) for number, path in enumerate(paths)),
        host("kubelet", node.root, **shared),
        host("state", state),
        strict=True,
    )
    command = [sys.executable, "-m", "tests.csi_driver", "--kubelet", str(node.root), "--state", str(state)]
    container = {
        "name": "driver", "image": IMAGE, "imagePullPolicy": "Never", "command": [*command, "--node", "node"],
        "workingDir": str(REPOSITORY), "securityContext": PRIVILEGED, "volumeMounts": list(mounts),
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
    }  # fmt: skip
    spec = {
        "hostNetwork": True,
        "containers": [container],
        "volumes": list(volumes),
        "terminationGracePeriodSeconds": 1,
    }
    labels = {"app": "csi"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "csi"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip


@pytest.fixture(scope="module")
def driver(node):
    modes = ["Persistent", "Ephemeral"]
    spec = {"attachRequired": False, "podInfoOnMount": True, "volumeLifecycleModes": modes}
    meta = {"name": DRIVER}
    node.make(
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": meta, "spec": spec}, daemon_set(node)
    )
    node.eventually(lambda: registered(node), lambda: node("describe pods"))
    return node.prefix / "csi"


def registered(node):
    done = node.run("get csinode node -o json")
    return done.returncode == 0 and bool(json.loads(done.stdout)["spec"].get("drivers"))


def calls(state):
    path = state / "calls"
    boring = ("NodeGetInfo", "NodeGetCapabilities", "registered")
    names = [json.loads(line)["call"] for line in path.read_text().splitlines()] if path.exists() else []
    return [name for name in names if name not in boring]


def bind(node, name, **source):
    """A claim and its volume, bound as the controller binds them."""
    modes, size = {"accessModes": ["ReadWriteOnce"]}, {"storage": "1Gi"}
    spec = {**modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": name}
    node.make({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec})
    reference = {"name": name, "namespace": "default", "uid": node.get(f"pvc {name}")["metadata"]["uid"]}
    volume = {"capacity": size, "claimRef": reference, "persistentVolumeReclaimPolicy": "Retain", **modes, **source}
    node.make({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume})
    status = json.dumps({"status": {"phase": "Bound", "capacity": size, **modes}})
    node(f"patch pvc {name} --subresource=status --type=merge -p", status)


def using(pod, container, name, volume, script=None, **mount):
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    containers = [container("c", *([script] if script else []), volumeMounts=mounts)]
    return pod(name, containers=containers, volumes=[{"name": "v", **volume}], nodeName="node")


def claim(name):
    return {"persistentVolumeClaim": {"claimName": name}}


def csi_mounts(node):
    return [target for target in node.space.mounts() if "csi" in target and target.startswith(str(node.root))]


def test_a_pod_waits_for_its_claim_and_writes_to_a_local_volume(node, pod, container, name):
    disk = node.prefix / "disk"
    disk.mkdir()
    node.make(using(pod, container, name, claim(name), "echo kept > /v/file; sleep 1000"))
    assert "failed to fetch PVC from API server" in node.event_message(name, "FailedMount")
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    bind(node, name, local={"path": str(disk)}, nodeAffinity=affinity)
    node.wait(f"pod/{name}", "condition=Ready")
    node.eventually((disk / "file").exists)
    node(f"delete pod {name} --grace-period=1")
    assert (disk / "file").read_text() == "kept\n"


def test_an_image_is_a_read_only_volume(node, pod, container, name):
    volume = {"image": {"reference": IMAGE, "pullPolicy": "Never"}}
    node.make(using(pod, container, name, volume), using(pod, container, f"{name}-sub", volume, subPath="bin"))
    node.wait(f"pod/{name} pod/{name}-sub", "condition=Ready")
    assert "busybox" in node.exec(name, "ls /v/bin")
    assert "busybox" in node.exec(f"{name}-sub", "ls /v")
    assert node.exec(name, "/v/bin/busybox echo runs") == "runs\n"
    assert "Read-only file system" in node.run(f"exec {name} -- touch /v/x").stderr


def test_a_path_that_is_not_in_the_image_and_an_image_that_is_missing_are_named(node, pod, container, name):
    volume, missing = {"image": {"reference": IMAGE, "pullPolicy": "Never"}}, {"image": {"reference": "none:1"}}
    missing["image"]["pullPolicy"] = "Never"
    node.make(using(pod, container, name, volume, subPath="nowhere"), using(pod, container, f"{name}-missing", missing))
    assert "'nowhere' does not exist in the image" in node.event_message(name, "Failed")
    message = 'Container image "none:1" is not present with pull policy of Never'
    assert node.event_message(f"{name}-missing", "ErrImageNeverPull") == message


def test_a_driver_in_a_pod_publishes_volumes_for_other_pods(node, pod, container, name, driver):
    bind(node, name, csi={"driver": DRIVER, "volumeHandle": name})
    inline = {"csi": {"driver": DRIVER, "volumeAttributes": {"color": "blue"}}}
    node.make(
        using(pod, container, name, claim(name), "echo kept > /v/file; sleep 1000"),
        using(pod, container, f"{name}-in", inline),
    )
    node.wait(f"pod/{name} pod/{name}-in", "condition=Ready")
    node.eventually((driver / "volumes" / name / "file").exists)
    assert node.exec(f"{name}-in", "cat /v/context-color") == "blue"
    assert node.exec(name, "cat /v/context-csi.storage.k8s.io_pod.name") == name
    node(f"delete pod {name} {name}-in --grace-period=1")
    node.eventually(lambda: not csi_mounts(node), lambda: csi_mounts(node))
    assert (driver / "volumes" / name / "file").read_text() == "kept\n"


def test_a_finished_pod_gives_its_volume_back(node, pod, container, name, driver):
    bind(node, name, csi={"driver": DRIVER, "volumeHandle": name})
    finished = using(pod, container, name, claim(name), "echo done > /v/file")
    finished["spec"]["restartPolicy"] = "Never"
    node.make(finished)
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Succeeded")
    node.eventually(lambda: not csi_mounts(node), lambda: csi_mounts(node))
    assert calls(driver)[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]


def test_volumes_of_pods_deleted_while_kubelet_and_driver_were_dead_are_undone(node, pod, container, name, driver):
    bind(node, name, csi={"driver": DRIVER, "volumeHandle": name})
    node.make(using(pod, container, name, claim(name)))
    node.wait(f"pod/{name}", "condition=Ready")
    node.kubelet.kill()
    node(f"delete pod {name} --force --grace-period=0")
    node("delete pod -l app=csi --force --grace-period=0")
    assert csi_mounts(node)
    node.kubelet.start()
    node.eventually(lambda: not csi_mounts(node), lambda: csi_mounts(node))
    node.eventually(lambda: registered(node))


def test_a_kubelet_killed_while_the_driver_hangs_goes_on_with_the_next_one(node, pod, container, name, driver):
    bind(node, name, csi={"driver": DRIVER, "volumeHandle": name})
    before = calls(driver).count("NodePublishVolume")
    (driver / "faults").write_text(json.dumps({"NodePublishVolume": {"hang": True}}))
    node.make(using(pod, container, name, claim(name)))
    node.eventually(lambda: calls(driver).count("NodePublishVolume") > before)
    node.kubelet.kill()
    (driver / "faults").unlink()
    node.kubelet.start()
    node.wait(f"pod/{name}", "condition=Ready")
    node(f"delete pod {name} --grace-period=1")
    node.eventually(lambda: not csi_mounts(node), lambda: csi_mounts(node))
