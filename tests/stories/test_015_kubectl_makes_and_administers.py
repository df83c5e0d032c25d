"""The tour goes on: every `kubectl create …`, who may do what, nodes, dry runs, and how refusals read."""

import json
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: web, image: "nginx:1.27"}]}
"""
MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: colours, labels: {app: web}}
data: {sky: blue}
"""

MADE = {
    "create cm c --from-literal=a=b --from-literal=c=d": "configmap/c created",
    "create sa robot": "serviceaccount/robot created",
    "create secret generic word --from-literal=pass=word": "secret/word created",
    "create secret docker-registry pull --docker-username=u --docker-password=p": "secret/pull created",
    "create deployment web --image=nginx --replicas=2": "deployment.apps/web created",
    "create service clusterip inside --tcp=80:8080": "service/inside created",
    "create service nodeport outside --tcp=80": "service/outside created",
    "create service externalname other --external-name=example.com": "service/other created",
    "create service loadbalancer spread --tcp=80": "service/spread created",
    "create quota small --hard=pods=30,services=20": "resourcequota/small created",
    "create role reader --verb=get,list --resource=pods": "role.rbac.authorization.k8s.io/reader created",
    "create rolebinding readers --role=reader --user=bob": "rolebinding.rbac.authorization.k8s.io/readers created",
    "create job once --image=busybox -- true": "job.batch/once created",
    "create cronjob daily --image=busybox --schedule='0 3 * * *' -- true": "cronjob.batch/daily created",
    "create ingress door --rule=example.com/=inside:80": "ingress.networking.k8s.io/door created",
    "create pdb careful --selector=app=web --min-available=1": "poddisruptionbudget.policy/careful created",
    "run one --image=busybox --labels=app=one --env=A=B -- sleep 1d": "pod/one created",
}
FROM_1_21 = ("create cronjob", "create pdb")
"""1.20 makes these only in groups and versions that are long gone."""


def test_create_makes_every_kind_that_it_knows(kubectl):
    wanted = {
        command: output
        for command, output in MADE.items()
        if kubectl.version >= (1, 21) or not command.startswith(FROM_1_21)
    }
    assert kubectl.together(*wanted) == [f"{item}\n" for item in wanted.values()]
    assert kubectl("expose deployment web --port=80 --name=front") == "service/front exposed\n"
    assert kubectl("get svc inside -o jsonpath={.spec.ports[0].targetPort}") == "8080"
    assert kubectl("get secret word -o jsonpath={.data.pass}") == "d29yZA=="
    assert kubectl("get pod one -o jsonpath={.spec.containers[0].args}") == '["sleep","1d"]'
    assert kubectl("get svc -o jsonpath={.items[*].spec.type}").split() == [
        "ClusterIP", "ClusterIP", "ExternalName", "NodePort", "LoadBalancer",
    ]  # fmt: skip
    uids = kubectl("get svc,ipaddress -A -o jsonpath={.items[*].metadata.uid}").split()
    assert len(uids) == len(set(uids)), "an address is not part of its service"
    twice = kubectl.refused("create sa robot")
    assert 'serviceaccounts "robot" already exists' in twice


def test_create_makes_cluster_scoped_objects(kubectl):
    name = f"{kubectl.namespace}-x"
    made = kubectl.together(
        f"create ns {name}",
        f"create clusterrole {name} --verb=get --resource=nodes",
        f"create clusterrolebinding {name} --clusterrole={name} --group=friends",
        f"create priorityclass {name} --value=7",
    )
    assert made == [
        f"namespace/{name} created\n",
        f"clusterrole.rbac.authorization.k8s.io/{name} created\n",
        f"clusterrolebinding.rbac.authorization.k8s.io/{name} created\n",
        f"priorityclass.scheduling.k8s.io/{name} created\n",
    ]
    assert kubectl(f"get ns {name} --no-headers").split()[:2] == [name, "Active"]
    kubectl.together(f"delete ns {name}", f"delete clusterrole,clusterrolebinding,priorityclass {name}")
    assert "NotFound" in kubectl.refused(f"get ns {name}")


def test_a_token_authenticates_its_service_account(kubectl, server):
    kubectl("create sa robot")
    if kubectl.version >= (1, 24):
        token = kubectl("create token robot --duration=10m").strip()
    else:
        path = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/robot/token"
        token = server.rest("POST", path, {"spec": {}})["status"]["token"]
    config = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    robots = server.data_dir.with_name(f"{kubectl.namespace}.kubeconfig")
    robots.write_text(json.dumps(config))
    robot = {"KUBECONFIG": str(robots)}
    name = f"system:serviceaccount:{kubectl.namespace}:robot"
    assert "configmaps is forbidden" in kubectl.refused("get cm -o name", **robot)
    kubectl("create rolebinding robots --clusterrole=view", f"--serviceaccount={kubectl.namespace}:robot")
    assert kubectl("get cm -o name", **robot) == "configmap/kube-root-ca.crt\n"
    forbidden = kubectl.refused("get secrets", **robot)
    assert forbidden == (
        f'Error from server (Forbidden): secrets is forbidden: User "{name}" cannot list resource "secrets" '
        f'in API group "" in the namespace "{kubectl.namespace}"\n'
    )
    assert "configmaps is forbidden" in kubectl.refused("create cm x", **robot)
    assert kubectl("auth can-i list pods", **robot) == "yes\n"
    assert kubectl.run("auth can-i delete pods", **robot).stdout == "no\n"
    if kubectl.version >= (1, 28):
        assert name in kubectl("auth whoami", **robot)


def test_auth_can_i_answers(kubectl):
    account = f"system:serviceaccount:{kubectl.namespace}:default"
    answers = kubectl.together(
        "auth can-i create deployments.apps",
        "auth can-i '*' '*'",
        "auth can-i get /version",
        "auth can-i --list",
    )
    assert answers[:3] == ["yes\n"] * 3
    assert re.search(r"^\*\.\* +\[\] +\[\] +\[\*\]$", answers[3], re.MULTILINE)
    for what in ("list pods", "get secrets", "create pods"):
        assert kubectl.run(f"auth can-i {what} --as {account}").stdout == "no\n", what
    assert "cannot create resource" in kubectl.refused("create cm x", "--as", account)
    if kubectl.version >= (1, 28):
        assert kubectl.json("auth whoami")["status"]["userInfo"]["username"] == "kubernetes-admin"
        assert "bob" in kubectl("auth whoami --as bob --as-group friends")


def test_auth_can_i_lists_the_rules_of_roles(kubectl):
    account = f"system:serviceaccount:{kubectl.namespace}:default"
    kubectl.together(
        "create role reader --verb=get,list --resource=pods,pods/log",
        "create rolebinding readers --role=reader --serviceaccount=" + account.partition("account:")[2],
    )
    rules = kubectl(f"auth can-i --list --as {account}")
    for line in (
        r"pods +\[\] +\[\] +\[get list\]",
        r"pods/log +\[\] +\[\] +\[get list\]",
        r"selfsubjectaccessreviews\.authorization\.k8s\.io +\[\] +\[\] +\[create\]",
        r"+\[/healthz\] +\[\] +\[get\]",
    ):
        assert re.search(line.lstrip("+"), rules), rules
    assert "secrets" not in rules
    assert kubectl(f"auth can-i get pods --subresource=log --as {account}") == "yes\n"
    assert kubectl.run(f"auth can-i delete pods --as {account}").stdout == "no\n"
    kubectl(f"get pods --as {account}")


def test_a_user_who_may_write_bindings_does_not_become_an_administrator(kubectl):
    bob = ("--as", f"bob-{kubectl.namespace}")
    kubectl("create rolebinding admins --clusterrole=admin", f"--user={bob[1]}")
    kubectl("create role own --verb=get --resource=pods", *bob)
    kubectl("create rolebinding friends --clusterrole=view --user=jane", *bob)
    refusal = kubectl.refused("create rolebinding more --clusterrole=cluster-admin --user=jane", *bob)
    assert "is attempting to grant RBAC permissions not currently held" in refusal
    assert '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in refusal
    refusal = kubectl.refused("create clusterrolebinding more --clusterrole=view --user=jane", *bob)
    assert "cannot create resource" in refusal


def test_discovery_names_everything(kubectl):
    resources, namespaced, versions, version, raw, named = kubectl.together(
        "api-resources --no-headers",
        "api-resources --namespaced=false -o name",
        "api-versions",
        "version -o json",
        "get --raw /readyz",
        "api-resources --api-group=resource.k8s.io -o name",
    )
    assert re.search(r"^pods +po +v1 +true +Pod$", resources, re.MULTILINE)
    assert re.search(r"^deployments +deploy +apps/v1 +true +Deployment$", resources, re.MULTILINE)
    assert {"nodes", "namespaces", "customresourcedefinitions.apiextensions.k8s.io"} <= set(namespaced.split())
    assert {"v1", "apps/v1", "batch/v1", "resource.k8s.io/v1", "apiextensions.k8s.io/v1"} <= set(versions.split())
    assert json.loads(version)["serverVersion"]["major"] == "1"
    assert raw == "ok"
    assert "resourceclaims.resource.k8s.io" in named.split()


def test_scale_and_rollouts_change_the_template(kubectl):
    kubectl("create deployment web --image=nginx:1")
    assert kubectl("scale deployment web --replicas=4") == "deployment.apps/web scaled\n"
    assert kubectl("get deployment web -o jsonpath={.spec.replicas}") == "4"
    stale = kubectl.refused("scale deployment web --replicas=5 --current-replicas=3")
    assert "Expected replicas to be 3, was 4" in stale
    kubectl("set image deployment/web nginx=nginx:2")
    kubectl("set env deployment/web COLOUR=red")
    kubectl("set resources deployment web --limits=cpu=1,memory=64Mi")
    kubectl("rollout restart deployment/web")
    kubectl("rollout pause deployment/web")
    kubectl("autoscale deployment web --min=2 --max=5 --cpu-percent=70")
    deployment = kubectl.json("get deployment web")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["env"]) == ("nginx:2", [{"name": "COLOUR", "value": "red"}])
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "64Mi"}
    assert "kubectl.kubernetes.io/restartedAt" in deployment["spec"]["template"]["metadata"]["annotations"]
    assert deployment["spec"]["paused"] is True
    assert deployment["metadata"]["generation"] == 7
    assert kubectl("get hpa web -o jsonpath={.spec.minReplicas}-{.spec.maxReplicas}") == "2-5"


def test_nodes_are_cordoned_tainted_and_drained(kubectl, server):
    node = f"node-{kubectl.namespace}"
    server.rest("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    kubectl("apply -f -", given=POD)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    pod = f"/api/v1/namespaces/{kubectl.namespace}/pods/web"
    server.rest("POST", f"{pod}/binding", {"metadata": {"name": "web"}, "target": target})
    assert kubectl(f"cordon {node}") == f"node/{node} cordoned\n"
    assert "SchedulingDisabled" in kubectl(f"get node {node}")
    assert "Unschedulable: true" in " ".join(kubectl(f"describe node {node}").split())
    assert kubectl(f"uncordon {node}") == f"node/{node} uncordoned\n"
    assert kubectl(f"taint node {node} rain=heavy:NoSchedule") == f"node/{node} tainted\n"
    assert kubectl.json(f"get node {node}")["spec"]["taints"][0]["effect"] == "NoSchedule"
    assert kubectl(f"taint node {node} rain-") == f"node/{node} untainted\n"
    how = "server" if kubectl.version >= (1, 27) else "client"
    assert f"drained ({'server ' * (how == 'server')}dry run)" in kubectl(f"drain {node} --force --dry-run={how}")
    assert "deletionTimestamp" not in kubectl.json("get pod web")["metadata"]
    with ExitStack() as stack:
        drain = stack.enter_context(kubectl.background(f"drain {node} --force --grace-period=60 --timeout=20s"))
        drain.until("evicting pod", f"{kubectl.namespace}/web")
        with kubectl.background("get pod web -w") as watched:
            watched.until("Terminating")
        server.rest("DELETE", pod, {"gracePeriodSeconds": 0})  # what a kubelet says when the pod has ended
        drain.until(f"node/{node}", "drained" if kubectl.version >= (1, 21) else "evicted")
    kubectl(f"delete node {node}")


def test_a_disruption_budget_stops_a_drain(kubectl, server):
    node = f"node-{kubectl.namespace}"
    server.rest("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    kubectl("apply -f -", given=POD)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    pods = f"/api/v1/namespaces/{kubectl.namespace}/pods"
    server.rest("POST", f"{pods}/web/binding", {"metadata": {"name": "web"}, "target": target})
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    server.rest("PATCH", f"{pods}/web/status", status, Content_Type="application/merge-patch+json")
    budget = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    budgets = f"/apis/policy/v1/namespaces/{kubectl.namespace}/poddisruptionbudgets"
    server.rest("POST", budgets, budget)
    counted = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    merge = {"Content_Type": "application/merge-patch+json"}
    server.rest("PATCH", f"{budgets}/keep/status", {"status": {**counted, "expectedPods": 1}}, **merge)
    with kubectl.background(f"drain {node} --force --timeout=30s") as drain:
        drain.until("Cannot evict pod as it would violate the pod's disruption budget")
    assert "deletionTimestamp" not in kubectl.json("get pod web")["metadata"]
    kubectl(f"delete node {node}")


def test_a_dry_run_leaves_no_trace(kubectl):
    assert kubectl("create cm trial --dry-run=server") == "configmap/trial created (server dry run)\n"
    tried = kubectl("apply --dry-run=server -o json -f -", given=POD)
    assert json.loads(tried)["spec"]["restartPolicy"] == "Always"
    assert "NotFound" in kubectl.refused("get pod/web cm/trial")
    kubectl("apply -f -", given=MAP)
    kubectl("patch cm colours --dry-run=server -p", '{"data": {"sky": "red"}}')
    kubectl("delete cm colours --dry-run=server")
    assert kubectl("get cm colours -o jsonpath={.data.sky}") == "blue"


def test_apply_prune_deletes_omitted_objects(kubectl):
    two = MAP + "---" + MAP.replace("colours", "shapes")
    kubectl("apply -f -", given=two)
    kinds = "--prune-allowlist" if kubectl.version >= (1, 26) else "--prune-whitelist"
    kubectl(f"apply --prune -l app=web {kinds}=core/v1/ConfigMap -f -", given=MAP)
    assert kubectl("get cm -l app=web -o name") == "configmap/colours\n"


WRONG = {
    "an unknown field": (
        POD.replace("image:", "imagine: x, image:"),
        'strict decoding error: unknown field "spec.containers[0].imagine"',
    ),
    "a wrong type": (MAP.replace("blue", "[blue]"), "json: cannot unmarshal array into Go struct field"),
    "nothing to run": (POD.replace("containers:", "initContainers:"), "spec.containers: Required value"),
    "a bad name": (MAP.replace("colours", "Not_A_Name"), 'Invalid value: "Not_A_Name"'),
    "a bad label": (MAP.replace("app: web", "app: 'a b'"), "metadata.labels: Invalid value"),
    "another namespace": (
        MAP.replace("name: colours", "name: colours, namespace: elsewhere"),
        "does not match the namespace",
    ),
    "an unknown kind": (MAP.replace("ConfigMap", "Colour"), 'no matches for kind "Colour" in version "v1"'),
    "an unknown group": (
        MAP.replace("apiVersion: v1", "apiVersion: example.org/v1"),
        'no matches for kind "ConfigMap" in version "example.org/v1"',
    ),
}


def test_refusals_name_the_invalid_field(kubectl):
    """1.20 validates by OpenAPI v2 itself, and does not ask for strictness."""
    lax = " --validate=false" if kubectl.version < (1, 27) else ""
    for what, (manifest, expected) in WRONG.items():
        if what == "an unknown field" and lax:
            continue
        error = kubectl.refused(f"apply{lax} -f -", given=manifest)
        assert expected in error, f"{what}: {error}"
    missing = kubectl.refused("create cm x --namespace absent-one")
    assert 'namespaces "absent-one" not found' in missing
    assert kubectl("get cm,pod -l app=web -o name") == ""


def test_a_lax_kubectl_is_at_least_warned_of_unknown_fields(kubectl):
    lax = " --validate=false" if kubectl.version < (1, 27) else " --validate=warn"
    made = kubectl.run(f"apply{lax} -f -", given=WRONG["an unknown field"][0])
    assert (made.returncode, made.stdout) == (0, "pod/web created\n"), made.stderr
    assert 'Warning: unknown field "spec.containers[0].imagine"' in made.stderr
    assert "imagine" not in kubectl.json("get pod web")["spec"]["containers"][0]


def test_an_old_kubectl_finds_errors_by_the_schema_of_the_server(kubectl):
    if kubectl.version < (1, 27):
        for what, words in (
            ("an unknown field", 'unknown field "imagine" in io.k8s.api.core.v1.Container'),
            ("a wrong type", 'invalid type for io.k8s.api.core.v1.ConfigMap.data: got "array", expected "string"'),
        ):
            assert words in kubectl.refused("apply -f -", given=WRONG[what][0])


def test_events_are_listed(kubectl, server):
    event = {
        "metadata": {"generateName": "web."},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": kubectl.namespace, "name": "web"},
        "reason": "Rained",
        "message": "all day",
        "type": "Normal",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    server.rest("POST", f"/api/v1/namespaces/{kubectl.namespace}/events", event)
    assert re.search(r"Normal +Rained +pod/web +all day", kubectl("get events"))
    assert "pod/web" in kubectl("get events --field-selector reason=Rained,involvedObject.name=web")
    if kubectl.version >= (1, 26):
        assert "Rained" in kubectl("events --for pod/web")


def test_a_certificate_request_is_approved_and_denied(kubectl, tmp_path):
    request = signing_request(tmp_path)
    for verb, condition in (("approve", "Approved"), ("deny", "Denied")):
        name = f"{verb}-{kubectl.namespace}"
        csr = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"request": request, "signerName": "example.com/tests", "usages": ["client auth"]},
        }
        kubectl("create -f -", given=json.dumps(csr))
        assert "Pending" in kubectl(f"get csr {name}")
        kubectl(f"certificate {verb} {name}")
        assert condition in kubectl(f"get csr {name}")
        assert kubectl(f"get csr {name} -o jsonpath={{.spec.username}}") == "kubernetes-admin"
        kubectl(f"delete csr {name}")


def signing_request(folder: Path) -> str:
    """In base64, by openssl."""
    words = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=me -keyout"
    made = subprocess.run([*words.split(), str(folder / "key")], capture_output=True, check=True)
    encoded = subprocess.run(["base64", "-w0"], input=made.stdout, capture_output=True, check=True)
    return encoded.stdout.decode()
