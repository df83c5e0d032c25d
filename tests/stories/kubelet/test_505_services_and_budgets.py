"""Addresses of Services, disruption budgets and certificates with kubectl on a real node."""

import base64
import json
import subprocess

LABELS = {"app": "web"}


def deployment(name, replicas=2):
    container = {"name": "c", "image": "podwire.local/busybox:latest", "command": ["sh", "-c", "sleep 1000"]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template},
    }


def addresses(node, name):
    slices = node.get(f"endpointslices -l kubernetes.io/service-name={name}")["items"]
    rows = [row for slice_ in slices for row in slice_.get("endpoints") or ()]
    return {row["addresses"][0] for row in rows if row["conditions"]["ready"]}


def test_a_service_has_the_addresses_of_its_ready_pods_and_a_budget_protects_them(node, name):
    node.make(deployment(name))
    node(f"expose deployment {name} --port=80")
    node(f"create pdb {name} --selector=app=web --min-available=2")
    node(f"rollout status deployment {name} --timeout=60s")
    pods = node.get("pods -l app=web")["items"]
    ips = {pod["status"]["podIP"] for pod in pods}
    node.eventually(lambda: addresses(node, name) == ips)
    shown = node(f"get endpoints {name} --no-headers").split()[1]
    assert {address.rpartition(":")[0] for address in shown.split(",")} == ips
    node.eventually(lambda: node.get(f"pdb {name}")["status"]["currentHealthy"] == 2)
    victim = pods[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{victim}/eviction"
    refused = node.run(f"create --raw {path} -f -", given=eviction)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.stderr
    node(f"scale deployment {name} --replicas=3")
    node.eventually(lambda: node.get(f"pdb {name}")["status"]["disruptionsAllowed"] == 1)
    node(f"create --raw {path} -f -", given=eviction)
    node.eventually(lambda: node.run(f"get pod {victim}").returncode != 0)
    node.eventually(lambda: len(addresses(node, name)) == 3 and not addresses(node, name) <= ips)
    node(f"delete deployment,service,pdb {name}")
    node.eventually(lambda: not node.get(f"endpointslices -l kubernetes.io/service-name={name}")["items"])
    node.eventually(lambda: node.run(f"get endpoints {name}").returncode != 0)


def test_an_approved_certificate_request_makes_a_user(node, name, tmp_path):
    key, request, certificate = tmp_path / "key", tmp_path / "csr", tmp_path / "crt"
    words = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", f"/CN={name}/O=writers", "-keyout", str(key), "-out", str(request)]
    subprocess.run(words, check=True, capture_output=True)
    spec = {
        "request": base64.b64encode(request.read_bytes()).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    made = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    node.make({**made, "spec": spec})
    node(f"certificate approve {name}")
    text = node.eventually(lambda: node(f"get csr {name} -o jsonpath={{.status.certificate}}"))
    certificate.write_bytes(base64.b64decode(text))
    config = json.loads(node("config view --raw -o json"))
    cluster = config["clusters"][0]
    user = {"name": name, "user": {"client-certificate": str(certificate), "client-key": str(key)}}
    context = {"name": name, "context": {"cluster": cluster["name"], "user": name}}
    own = tmp_path / "kubeconfig"
    own.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user],
                               "contexts": [context], "current-context": name}))  # fmt: skip
    refused = node.run(f"--kubeconfig {own} get pods")
    assert f'User "{name}" cannot list resource "pods"' in refused.stderr
    node(f"create rolebinding {name} --clusterrole=view --group=writers")
    node.eventually(lambda: node.run(f"--kubeconfig {own} get pods").returncode == 0)
    node(f"delete csr {name}")
    node(f"delete rolebinding {name}")
