"""Claims, volumes and classes for tests."""

MODES = ["ReadWriteOnce"]


def claim(name="data", size="1Gi", *, uid="", namespace="default", annotations=None, phase="", **spec):
    metadata = {"name": name, "namespace": namespace}
    metadata |= {"uid": uid, "resourceVersion": "1"} if uid else {}
    metadata |= {"annotations": annotations} if annotations else {}
    given = {"accessModes": MODES, "resources": {"requests": {"storage": size}}, **spec}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": given}
    return {**made, "status": {"phase": phase}} if phase else made


def volume(name="disk", size="1Gi", *, phase="", annotations=None, labels=None, deleted=False, **spec):
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    given = {"accessModes": MODES, "capacity": {"storage": size}, "hostPath": {"path": "/srv/x"}, **spec}
    made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": given}
    return {**made, "status": {"phase": phase}} if phase else made


def storage_class(name="fast", provisioner="disks.example.com", *, default=False, created="", **fields):
    metadata = {"name": name}
    metadata |= {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}} if default else {}
    metadata |= {"creationTimestamp": created} if created else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata,
        "provisioner": provisioner,
        **fields,
    }


def reference(name="data", uid="c1", namespace="default"):
    found = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": name}
    return {**found, "uid": uid} if uid else found
