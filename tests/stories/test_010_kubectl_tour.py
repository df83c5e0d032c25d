"""A tour with every kubectl of this machine: objects are made, looked at, changed, waited for and removed."""

import json
import re
from contextlib import ExitStack

from tests.eventually import eventually

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: web, image: "nginx:1.27", ports: [{containerPort: 80}]}]
"""
MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: colours, labels: {app: web}}
data: {sky: blue, grass: green}
"""


def run_pod(server, kubectl, name="web"):
    """The status that a kubelet would report."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{name}/status"
    status = {
        "phase": "Running",
        "podIP": "10.1.0.7",
        "podIPs": [{"ip": "10.1.0.7"}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        "containerStatuses": [
            {
                "name": "web",
                "image": "nginx:1.27",
                "imageID": "",
                "ready": True,
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
                "lastState": {},
            }
        ],
    }
    server.rest("PATCH", path, {"status": status}, Content_Type="application/merge-patch+json")


def bind_pod(server, kubectl, node, name="web"):
    """The allocation that a scheduler would write."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{name}/binding"
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    server.rest("POST", path, {"metadata": {"name": name}, "target": target})


def test_apply_prints_its_result(kubectl):
    assert kubectl("apply -f -", given=f"{POD}---{MAP}") == "pod/web created\nconfigmap/colours created\n"
    assert kubectl("apply -f -", given=f"{POD}---{MAP}") == "pod/web unchanged\nconfigmap/colours unchanged\n"
    changed = POD.replace("nginx:1.27", "nginx:1.28") + "---" + MAP.replace(", grass: green", ", sea: blue")
    assert kubectl("apply -f -", given=changed) == "pod/web configured\nconfigmap/colours configured\n"
    assert kubectl("get pod web -o jsonpath={.spec.containers[*].image}") == "nginx:1.28"
    assert json.loads(kubectl("get cm colours -o jsonpath={.data}")) == {"sky": "blue", "sea": "blue"}


def test_diff_shows_the_changes_of_an_apply(kubectl):
    if kubectl.version < (1, 27):
        return  # 1.20 looks up in OpenAPI v2 whether a kind has dry runs, and finds none there
    kubectl("apply -f -", given=POD)
    changed = POD.replace("nginx:1.27", "nginx:1.28")
    diff = kubectl.run("diff -f -", given=changed)
    assert diff.returncode == 1, diff.stderr
    assert re.search(r"^-.*image: nginx:1.27\n\+.*image: nginx:1.28$", diff.stdout, re.MULTILINE), diff.stdout
    kubectl("apply -f -", given=changed)
    assert kubectl("diff -f -", given=changed) == ""


def test_apply_keeps_fields_of_other_managers(kubectl):
    kubectl("apply -f -", given=MAP)
    kubectl("patch cm colours -p", '{"data": {"night": "black"}}')
    kubectl("apply -f -", given=MAP.replace("green", "yellow"))
    assert kubectl.json("get cm colours")["data"] == {"sky": "blue", "grass": "yellow", "night": "black"}
    assert "sky: blue" in kubectl("apply view-last-applied cm colours")


def test_get_in_every_form(kubectl, server):
    kubectl("apply -f -", given=POD)
    run_pod(server, kubectl)
    kubectl("apply -f -", given=POD.replace("web", "api"))
    shown = kubectl.together(
        "get pods",
        "get pods -o wide",
        "get pod web -o yaml",
        "get pods -o json",
        "get pods -o name",
        "get pods -o jsonpath='{range .items[*]}{.metadata.name}={.status.phase} {end}'",
        "get pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[0].image",
        "get pods -o go-template='{{range .items}}{{.metadata.name}};{{end}}'",
        "get po --show-labels --no-headers",
    )
    table, wide, yaml, as_json, names, path, columns, template, labels = shown
    assert [line.split() for line in table.splitlines()] == [
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        ["api", "0/1", "Pending", "0", table.splitlines()[1].split()[-1]],
        ["web", "1/1", "Running", "2", table.splitlines()[2].split()[-1]],
    ]
    assert re.search(r"^NAME .*AGE +IP +NODE +NOMINATED NODE +READINESS GATES\n", wide)
    assert re.search(r"^web .* 10\.1\.0\.7 +<none> +<none> +<none>$", wide, re.MULTILINE)
    assert yaml.startswith("apiVersion: v1\nkind: Pod\nmetadata:\n")
    assert [item["metadata"]["name"] for item in json.loads(as_json)["items"]] == ["api", "web"]
    assert names == "pod/api\npod/web\n"
    assert path == "api=Pending web=Running "
    assert [line.split() for line in columns.splitlines()] == [
        ["NAME", "IMAGE"], ["api", "nginx:1.27"], ["web", "nginx:1.27"],
    ]  # fmt: skip
    assert template == "api;web;"
    assert [line.split()[-1] for line in labels.splitlines()] == ["app=api", "app=web"]


def test_get_selects_sorts_and_pages(kubectl, server):
    kubectl("apply -f -", given="---".join(POD.replace("name: web", f"name: p{number}") for number in (1, 2, 3)))
    kubectl("label pod p1 tier=front")
    server.rest(
        "PATCH",
        f"/api/v1/namespaces/{kubectl.namespace}/pods/p3/status",
        {"status": {"phase": "Failed"}},
        Content_Type="application/merge-patch+json",
    )
    shown = kubectl.together(
        "get pods -o name -l tier=front",
        "get pods -o name -l 'app in (web,x),!tier'",
        "get pods -o name --field-selector status.phase=Failed",
        "get pods -o name --field-selector metadata.name!=p2,status.phase!=Failed",
        "get pods -o name --sort-by '{.metadata.name}' --chunk-size=1",
        "get pods --no-headers --chunk-size=1",
        "get pods -A --no-headers -l tier=front",
        "get pod,cm -o name",
        "get pod absent --ignore-not-found",
        "get all -o name",
    )
    assert shown[0] == "pod/p1\n"
    assert shown[1] == "pod/p2\npod/p3\n"
    assert shown[2] == "pod/p3\n"
    assert shown[3] == "pod/p1\n"
    assert shown[4] == "pod/p1\npod/p2\npod/p3\n"
    assert [line.split()[:3] for line in shown[5].splitlines()] == [
        ["p1", "0/1", "Pending"], ["p2", "0/1", "Pending"], ["p3", "0/1", "Failed"],
    ]  # fmt: skip
    assert shown[6].split()[:2] == [kubectl.namespace, "p1"]
    assert shown[7] == "pod/p1\npod/p2\npod/p3\nconfigmap/kube-root-ca.crt\n"
    assert shown[8] == ""
    assert shown[9] == "pod/p1\npod/p2\npod/p3\n"
    assert kubectl.refused("get pod absent") == 'Error from server (NotFound): pods "absent" not found\n'
    assert "field label not supported: spec.colour" in kubectl.refused("get pods --field-selector spec.colour=red")


def test_get_watches(kubectl, server):
    kubectl("apply -f -", given=POD)
    with (
        kubectl.background("get pods -w --no-headers") as all_pods,
        kubectl.background("get pod web -w -o name") as one_pod,
        kubectl.background("get pods --watch-only -l app=later -o name -v=6") as later,
        kubectl.background("get pods -A -w --output-watch-events -o wide") as everywhere,
    ):
        all_pods.until("web", "Pending")
        one_pod.until("pod/web")
        later.until("watch=true")
        everywhere.until("ADDED", kubectl.namespace, "web")
        run_pod(server, kubectl)
        all_pods.until("web", "1/1", "Running")
        one_pod.until("pod/web")
        everywhere.until("MODIFIED", "web", "Running", "10.1.0.7")
        server.rest(
            "PATCH",
            f"/api/v1/namespaces/{kubectl.namespace}/pods/web",
            {"metadata": {"labels": {"app": "later"}}},
            Content_Type="application/merge-patch+json",
        )
        later.until("pod/web")
        server.rest("DELETE", f"/api/v1/namespaces/{kubectl.namespace}/pods/web")
        everywhere.until("DELETED", "web")
        kubectl("create cm other --from-literal=a=b")


DESCRIBED = {
    "pod/web": ["Name: web", "Image: nginx:1.27", "Restart Count: 2", "Ready True", "Warning Unhappy", "it rains"],
    "service/front": ["Selector: app=web", "Port: http 80/TCP", "TargetPort: 8080/TCP"],
    "deployment/d": ["Replicas: 3 desired", "StrategyType: RollingUpdate"],
    "cm/colours": ["sky: ---- blue"],
    "secret/s": ["Type: Opaque", "word: 6 bytes"],
    "sa/default": ["Mountable secrets: <none>"],
    "quota/q": ["pods 1 5"],
    "job/j": ["Parallelism: 1", "Completions: 1"],
    "ingress/i": ["example.com", "/ front:80"],
    "pvc/claim": ["Status: Pending", "Access Modes:"],
    "networkpolicy/deny": ["Policy Types: Ingress"],
    "role/reader": ["pods [] [] [get list]"],
    "rolebinding/readers": ["ServiceAccount default"],
}
THINGS = """
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i}
spec:
  rules:
  - host: example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 3
  paused: true
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1.27"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {word: secret}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: q}
spec: {hard: {pods: 5}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: default}]
"""


def test_describe_works_for_every_kind(kubectl, server):
    kubectl("apply -f -", given=f"{POD}---{MAP}---{THINGS}")
    run_pod(server, kubectl)
    uid = kubectl("get pod web -o jsonpath={.metadata.uid}")
    event = {
        "metadata": {"generateName": "web."},
        "involvedObject": {"kind": "Pod", "namespace": kubectl.namespace, "name": "web", "uid": uid},
        "reason": "Unhappy",
        "message": "it rains",
        "type": "Warning",
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }
    server.rest("POST", f"/api/v1/namespaces/{kubectl.namespace}/events", event)
    eventually(lambda: kubectl("get quota q -o jsonpath={.status.used.pods}") == "1")
    output = kubectl.together(*(f"describe {item}" for item in DESCRIBED))
    for (what, expected), text in zip(DESCRIBED.items(), output, strict=True):
        plain = " ".join(text.split())
        assert [item for item in expected if item not in plain] == [], f"describe {what}:\n{text}"


EXPLAINED = {
    "pods": "Pod is a collection of containers",
    "pod.spec.containers.image": "Container image name",
    "deployment.spec.strategy.rollingUpdate": "Rolling update config params",
    "resourceclaims.spec.devices": "Devices defines how to request devices",
    "leases.spec.holderIdentity": "holderIdentity contains the identity of the holder",
    "crd.spec.versions.schema": "schema describes the schema used for validation",
}


def test_explain_describes_fields(kubectl):
    if kubectl.version < (1, 27):
        return  # 1.20 reads OpenAPI v2, which describes no kind
    output = kubectl.together(*(f"explain {item}" for item in EXPLAINED), "explain pod.spec --recursive")
    for (what, expected), text in zip(EXPLAINED.items(), output, strict=False):
        assert expected in " ".join(text.split()), f"explain {what}:\n{text}"
    recursive = r"containers\s+<\[\]Container>.*ports\s+<\[\]ContainerPort>.*hostPort\s+<integer>"
    assert re.search(recursive, output[-1], re.DOTALL)
    assert "nonsense" in kubectl.refused("explain pod.spec.nonsense")


def test_label_and_annotate(kubectl):
    kubectl("apply -f -", given=f"{POD}---{MAP}")
    assert kubectl("label pod web tier=front") == "pod/web labeled\n"
    assert "already has a value (front)" in kubectl.refused("label pod web tier=back")
    kubectl("label pod web tier=back --overwrite")
    kubectl("label pod,cm -l app=web owner=me")
    kubectl("label pod web app-")
    assert kubectl.json("get pod web")["metadata"]["labels"] == {"tier": "back", "owner": "me"}
    assert kubectl.json("get cm colours")["metadata"]["labels"] == {"app": "web", "owner": "me"}
    kubectl("annotate pod web note='two words' more=1")
    kubectl("annotate pod web more-")
    annotations = kubectl.json("get pod web")["metadata"]["annotations"]
    assert annotations.get("note") == "two words"
    assert "more" not in annotations
    assert "must consist of alphanumeric" in kubectl.refused("label pod web 'a b=c'")


def test_patch_in_three_languages(kubectl):
    kubectl("apply -f -", given=f"{POD}---{MAP}")
    kubectl("patch pod web -p", '{"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}')
    assert kubectl("get pod web -o jsonpath={.spec.containers[0].ports[0].containerPort}") == "80"
    kubectl("patch cm colours --type merge -p", '{"data": {"sky": null, "sea": "grey"}}')
    assert kubectl.json("get cm colours")["data"] == {"grass": "green", "sea": "grey"}
    operations = [{"op": "test", "path": "/data/sea", "value": "grey"}, {"op": "remove", "path": "/data/grass"}]
    kubectl("patch cm colours --type json -p", json.dumps(operations))
    assert kubectl.json("get cm colours")["data"] == {"sea": "grey"}
    assert kubectl("patch cm colours --type merge -p", '{"data": {"sea": "grey"}}').endswith("(no change)\n")
    failed = kubectl.refused("patch cm colours --type json -p", json.dumps(operations))
    assert "The request is invalid" in failed or "testing path /data/sea" in failed or "remove operation" in failed
    assert "pod updates may not change fields" in kubectl.refused("patch pod web -p", '{"spec": {"hostNetwork": true}}')
    if kubectl.version >= (1, 24):
        kubectl("patch pod web --subresource status -p", '{"status": {"phase": "Running", "reason": "Why"}}')
        assert kubectl("get pod web --subresource status -o jsonpath={.status.reason}") == "Why"


def test_edit_and_replace(kubectl):
    kubectl("apply -f -", given=f"{POD}---{MAP}")
    editor = {"KUBE_EDITOR": "sed -i s/nginx:1.27/nginx:edited/"}
    assert kubectl("edit pod web", **editor) == "pod/web edited\n"
    assert kubectl("get pod web -o jsonpath={.spec.containers[0].image}") == "nginx:edited"
    again = kubectl.run("edit pod web", **editor)
    assert "no changes" in again.stdout + again.stderr
    fetched = kubectl("get cm colours -o yaml")
    assert kubectl("replace -f -", given=fetched.replace("blue", "pink")) == "configmap/colours replaced\n"
    stale = kubectl.refused("replace -f -", given=fetched.replace("blue", "red"))
    assert "the object has been modified; please apply your changes to the latest version" in stale
    uid = kubectl("get cm colours -o jsonpath={.metadata.uid}")
    replaced = kubectl("replace --force -f -", given=MAP)
    assert "replaced" in replaced
    assert kubectl("get cm colours -o jsonpath={.metadata.uid}") != uid
    assert 'configmaps "colours2" not found' in kubectl.refused(
        "replace -f -", given=MAP.replace("colours", "colours2")
    )


def test_wait(kubectl, server):
    kubectl("apply -f -", given=POD)
    waits = {"wait pod/web --for=condition=Ready": "watch=true"}
    if kubectl.version >= (1, 23):
        waits["wait pod/web --for=jsonpath='{.status.phase}'=Running"] = "watch=true"
    if kubectl.version >= (1, 31):
        waits["wait cm/later --for=create"] = "configmaps/later"
    with ExitStack() as stack:
        lines = [stack.enter_context(kubectl.background(f"{wait} --timeout=20s -v=6")) for wait in waits]
        for line, asked in zip(lines, waits.values(), strict=True):
            line.until(asked)
        run_pod(server, kubectl)
        kubectl("create cm later")
        for line in lines:
            line.until("condition met")
    assert "timed out" in kubectl.refused("wait pod/web --for=condition=Absent --timeout=1s")
    with kubectl.background("wait pod/web --for=delete --timeout=20s -v=6") as gone:
        gone.until("watch=true")
        kubectl("delete pod web --wait=false")
        gone.until("condition met")


def test_delete_one_some_all(kubectl, server):
    maps = "---".join(MAP.replace("colours", f"m{number}") for number in range(5))
    kubectl("apply -f -", given=maps)
    assert kubectl("delete cm m0").startswith('configmap "m0" deleted')
    kubectl("label cm m1 kill=yes")
    assert kubectl("delete cm -l kill=yes").startswith('configmap "m1" deleted')
    assert 'configmaps "m1" not found' in kubectl.refused("delete cm m1")
    assert kubectl("delete cm m1 --ignore-not-found") == ""
    kubectl("delete -f -", given=MAP.replace("colours", "m2"))
    assert kubectl("get cm -l app=web -o name") == "configmap/m3\nconfigmap/m4\n"
    kubectl("delete cm --all")
    assert kubectl("get cm -o name -l app=web") == ""


def test_a_running_pod_takes_its_time_to_go_unless_forced(kubectl, server):
    kubectl("apply -f -", given=POD)
    bind_pod(server, kubectl, "somewhere")
    kubectl("delete pod web --wait=false --grace-period=600")
    pod = kubectl.json("get pod web")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 600
    assert "Terminating" in kubectl("get pod web")
    forced = kubectl("delete pod web --grace-period=0 --force")
    assert 'pod "web" force deleted' in forced
    assert "not found" in kubectl.refused("get pod web")
