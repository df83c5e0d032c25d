"""Contents of a container: volumes, environment, limits, its user, names and addresses."""

import base64
import json
from pathlib import Path

import pytest


def mounted(**paths):
    return {"volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()]}


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name, **data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def test_two_containers_share_an_empty_directory(node, pod, container, name):
    writer = container("w", "echo hello >/one/file; sleep 3600", **mounted(v="/one"))
    reader = container("r", "until cat /two/file; do sleep 0.05; done; sleep 3600", **mounted(v="/two"))
    volumes = [{"name": "v", "emptyDir": {}}]
    node.make(pod(name, containers=[writer, reader], volumes=volumes, terminationGracePeriodSeconds=0))
    node.wait(f"pod/{name}", "condition=Ready")
    node.eventually(lambda: node(f"logs {name} -c r").endswith("hello\n"))


def test_volumes_of_every_kind(node, pod, container, name):
    node.make(config_map(name, key="from the map", other="x"), secret(name, password="from the secret"))
    place = node.prefix / f"host-{name}"
    volumes = [
        {"name": "map", "configMap": {"name": name, "items": [{"key": "key", "path": "deep/er"}]}},
        {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o400}},
        {"name": "down", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "host", "hostPath": {"path": str(place)}},
        {
            "name": "all",
            "projected": {"sources": [{"configMap": {"name": name}}, {"secret": {"name": name}}]},
        },
    ]
    mounts = mounted(map="/map", secret="/secret", down="/down", memory="/memory", host="/host", all="/all")
    mounts["volumeMounts"] += [{"name": "all", "mountPath": "/etc/one", "subPath": "key"}]
    mounts["volumeMounts"] += [{"name": "map", "mountPath": "/read", "readOnly": True}]
    node.make(
        pod(name, containers=[container("c", **mounts)], volumes=volumes, metadata={"labels": {"a": "b", "app": name}})
    )
    node.wait(f"pod/{name}", "condition=Ready")
    script = """
        cat /map/deep/er; echo; cat /secret/password; echo; stat -Lc %a /secret/password; cat /down/labels; echo
        grep ' /memory ' /proc/mounts | cut -d' ' -f3; echo written >/host/file; ls /all; cat /etc/one; echo
        touch /map/no 2>/dev/null || echo read-only
    """
    assert node.exec(name, script).splitlines() == [
        "from the map", "from the secret", "400", 'a="b"', f'app="{name}"', "tmpfs", "key", "other", "password",
        "from the map", "read-only",
    ]  # fmt: skip
    assert (place / "file").read_text() == "written\n"


def test_a_change_of_a_config_map_is_seen_inside(node, pod, container, name):
    node.make(config_map(name, key="old"))
    volumes = [{"name": "v", "configMap": {"name": name}}]
    node.make(pod(name, containers=[container("c", **mounted(v="/v"))], volumes=volumes))
    node.wait(f"pod/{name}", "condition=Ready")
    assert node.exec(name, "cat /v/key") == "old"
    node(f"patch configmap {name} -p", '{"data":{"key":"new"}}')
    node.eventually(lambda: node.exec(name, "cat /v/key") == "new")


def test_the_token_of_a_pod_opens_the_api_from_inside(node, pod, name):
    node(f"create role {name} --verb=get --resource=pods")
    node(f"create rolebinding {name} --role={name} --serviceaccount=default:default")
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    files = "/var/run/secrets/kubernetes.io/serviceaccount"
    token, authority = node.exec(name, f"cat {files}/token"), node.prefix / f"ca-{name}"
    authority.write_text(node.exec(name, f"cat {files}/ca.crt"))
    path = f"https://192.0.2.10:6443/api/v1/namespaces/{node.exec(name, f'cat {files}/namespace')}/pods/{name}"
    inside = ("nsenter", "-t", node.pid(name), "-n")
    bearer = f"Authorization: Bearer {token}"
    document = json.loads(node.space.output(*inside, "curl", "-s", "--cacert", authority, "-H", bearer, path))
    assert document["metadata"]["name"] == name
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["kubernetes.io"]["pod"]["name"] == name
    assert claims["kubernetes.io"]["node"]["name"] == "node"


def test_environment_of_every_kind(node, pod, container, name):
    node.make(config_map(name, one="1", two="2"), secret(name, word="hush"))
    fields = {
        "POD": "metadata.name", "NS": "metadata.namespace", "UID": "metadata.uid", "NODE": "spec.nodeName",
        "IP": "status.podIP", "HOST": "status.hostIP", "ACCOUNT": "spec.serviceAccountName",
        "LABEL": "metadata.labels['a']",
    }  # fmt: skip
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    env += [
        {"name": "PLAIN", "value": "x"},
        {"name": "EXPANDED", "value": "$(PLAIN)-$$(PLAIN)-$(NONE)"},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": name, "key": "one"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": name, "key": "word"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}}},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    sources = [{"prefix": "P_", "configMapRef": {"name": name}}, {"secretRef": {"name": "none", "optional": True}}]
    limits = {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}
    given = container("c", env=env, envFrom=sources, **limits)
    node.make(pod(name, containers=[given], metadata={"labels": {"a": "b"}}))
    node.wait(f"pod/{name}", "condition=Ready")
    found = dict(line.split("=", 1) for line in node.exec(name, "env").splitlines() if "=" in line)
    status = node.get(f"pod {name}")
    expected = {
        "POD": name, "NS": "default", "UID": status["metadata"]["uid"], "NODE": "node", "HOST": "192.0.2.10",
        "IP": status["status"]["podIP"], "ACCOUNT": "default", "LABEL": "b", "PLAIN": "x",
        "EXPANDED": "x-$(PLAIN)-$(NONE)", "MAP": "1", "SECRET": "hush", "LIMIT": "64", "P_one": "1", "P_two": "2",
        "HOSTNAME": name, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443",
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert "MAYBE" not in found


def test_limits_are_the_kernels(node, pod, container, name):
    limits = {"limits": {"memory": "64Mi", "cpu": "500m"}, "requests": {"cpu": "250m"}}
    node.make(pod(name, containers=[container("c", resources=limits)]))
    node.wait(f"pod/{name}", "condition=Ready")
    assert node.get(f"pod {name}")["status"]["qosClass"] == "Burstable"
    groups = dict(line.split(":")[1:] for line in Path(f"/proc/{node.pid(name)}/cgroup").read_text().splitlines())
    old, new = "memory/{}/memory.limit_in_bytes", "{}/memory.max"
    file = old.format(groups["memory"]) if "memory" in groups else new.format(groups[""])
    assert Path("/sys/fs/cgroup", file.replace("//", "/")).read_text() == f"{64 << 20}\n"


def test_a_container_over_its_memory_limit_is_oom_killed(node, pod, container, name):
    given = container("c", "x=$(head -c 64m /dev/zero | tr '\\0' x); sleep 1", resources={"limits": {"memory": "16Mi"}})
    node.make(pod(name, containers=[given], restartPolicy="Never"))
    node.wait(f"pod/{name}", "jsonpath={.status.phase}=Failed")
    (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "OOMKilled"


def test_security_contexts_are_kept(node, pod, container, name):
    context = {
        "runAsUser": 1234, "runAsGroup": 2345, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    given = container("c", securityContext=context, **mounted(v="/v"))
    volumes = [{"name": "v", "emptyDir": {}}]
    node.make(pod(name, containers=[given], volumes=volumes, securityContext={"fsGroup": 3456}))
    node.wait(f"pod/{name}", "condition=Ready")
    script = """
        id -u; id -g; id -G; touch /tmp/x 2>/dev/null || echo no; touch /v/x; stat -c %g /v/x
        grep -E 'CapEff|NoNewPrivs' /proc/self/status
    """
    assert node.exec(name, script).split() == [
        "1234", "2345", "2345", "3456", "no", "3456", "CapEff:", "0" * 16, "NoNewPrivs:", "1",
    ]  # fmt: skip


def test_run_as_non_root_refuses_root(node, pod, container, name):
    node.make(pod(name, containers=[container("c", securityContext={"runAsNonRoot": True})]))
    node.wait(f"pod/{name}", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError")
    assert "runAsNonRoot" in node(f"get pod {name} -o jsonpath={{.status.containerStatuses[0].state.waiting.message}}")


@pytest.mark.parametrize("kind", ["", "DirectoryOrCreate"], ids=["no type", "DirectoryOrCreate"])
def test_a_host_path_that_is_not_there_is_made(node, pod, container, name, kind):
    place = node.prefix / f"deep-{name}/er"
    volumes = [{"name": "v", "hostPath": {"path": str(place), "type": kind}}]
    node.make(pod(name, containers=[container("c", **mounted(v="/v"))], volumes=volumes))
    node.wait(f"pod/{name}", "condition=Ready")
    assert place.is_dir()


def test_a_host_path_that_must_be_there_is_waited_for(node, pod, container, name):
    place = node.prefix / f"waited-{name}"
    volumes = [{"name": "v", "hostPath": {"path": str(place), "type": "Directory"}}]
    node.make(pod(name, containers=[container("c", **mounted(v="/v"))], volumes=volumes))
    assert "hostPath type check failed" in node.event_message(name, "FailedMount")
    place.mkdir()
    node.wait(f"pod/{name}", "condition=Ready")


def test_fields_that_are_null_or_unknown_do_no_harm(node, pod, name):
    given = pod(name, nodeSelector=None, tolerations=None, volumes=None, hostAliases=None)
    given["spec"]["noSuchField"] = 1
    node("create --validate=false -f -", given=given)
    node.wait(f"pod/{name}", "condition=Ready")
