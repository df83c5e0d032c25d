"""The manifests of the demo, as files that users can read and change."""

from collections.abc import Mapping
from pathlib import Path

from podwire.runtime.images.build import ROOT_REFERENCE

WEB = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: {ROOT_REFERENCE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c]
    args:
    - |
      trap 'exit 0' TERM
      test -d /www || {{ mkdir /www && echo "hello from $(hostname)" > /www/index.html; }}
      httpd -p 80 -h /www && echo "$(hostname) serves on port 80"
      sleep infinity & wait
    ports: [{{containerPort: 80, hostPort: 8080}}]
  dnsPolicy: Default
"""

CLIENT = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: client
spec:
  containers:
  - name: client
    image: {ROOT_REFERENCE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"]
    securityContext:
      capabilities: {{add: [NET_RAW]}}  # for ping
  dnsPolicy: Default
"""

LIFE = CLIENT.replace("client", "life").replace("[NET_RAW]}  # for ping", "[NET_ADMIN]}  # to change routes")

REGISTRY = "127.0.0.1:5000"
"""Where the demo's registry listens: loopback of the node, which only the node reaches."""

PULLED = f"{REGISTRY}/demo/web:1"

PAGE = "hello from web, which came from a registry\n"

WEB_PULLED = WEB.replace(ROOT_REFERENCE, PULLED)
"""Pulled once: a cluster that is kept can start it again without the registry, which ends with the demo."""

REGISTRY_SETTINGS = f"""\
version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: registry}}}}
http: {{addr: {REGISTRY}, secret: demo}}
"""

RULES = """\
apiVersion: net.podwire.dev/v1
kind: PodRoute
metadata: {name: backup}
spec:
  routes: [{destinations: [198.51.100.0/24]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
"""

_NEEDS_PLUGIN = """\
metadata:
  annotations:
    net.podwire.dev/routes: backup
    required-plugins.noderesource.dev: '["nri-network"]'
"""


def _labelled(text: str, name: str) -> str:
    return text.replace("metadata:\n", f"metadata:\n  labels: {{app: {name}}}\n", 1)


_DB = WEB.replace("web", "db").replace(", hostPort: 8080", "").replace("metadata:\n", _NEEDS_PLUGIN, 1)
DB = "---\n".join(
    [
        _labelled(_DB, "db"),
        _labelled(CLIENT.replace("client", "friend"), "friend"),
        _labelled(CLIENT.replace("client", "stranger"), "stranger"),
    ]
)

POOLS = """\
pools:
- name: tun
  files: {paths: [/dev/net/tun], count: 100}
- name: vlan
  cdi: true
  make: {kind: macvlan, parent: eth0, count: 4}
"""

ROUTER = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: router
spec:
  containers:
  - name: router
    image: {ROOT_REFERENCE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; env | grep PODWIRE_DEVICE; sleep infinity & wait"]
    resources:
      limits:
        net.podwire.dev/tun: 1
        net.podwire.dev/vlan: 1
  dnsPolicy: Default
"""

CLASSES = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic}
spec: {selectors: [{cel: {expression: 'device.driver == "net.podwire.dev"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.podwire.dev"'}}]}
"""


def _claiming(name: str, address: str) -> str:
    """A claim for a card and a GPU that hang on one PCIe root, and a pod that has both."""
    return f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec:
  devices:
    requests:
    - {{name: nic, exactly: {{deviceClassName: nic}}}}
    - {{name: gpu, exactly: {{deviceClassName: gpu}}}}
    constraints:
    - {{matchAttribute: resource.kubernetes.io/pcieRoot}}
    config:
    - requests: [nic]
      opaque:
        driver: net.podwire.dev
        parameters:
          apiVersion: net.podwire.dev/v1alpha1
          kind: InterfaceParameters
          interface: {{name: net1, addresses: [{address}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  resourceClaims: [{{name: {name}, resourceClaimName: {name}}}]
  containers:
  - name: {name}
    image: {ROOT_REFERENCE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"]
    resources:
      claims: [{{name: {name}}}]
      limits: {{net.podwire.dev/chardev: 1}}  # the card's own device files
    securityContext:
      capabilities: {{add: [NET_RAW]}}  # for ping
  dnsPolicy: Default
"""


CLAIMS = "---\n".join([CLASSES, _claiming("fast", "192.0.2.1/24"), _claiming("peer", "192.0.2.2/24")])

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  containers:
  - name: web
    image: registry.example/web:1.25
    ports: [{containerPort: 80}]
    resources:
      requests: {cpu: 50m, memory: 64Mi}
"""

FERRY_DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ferries.harbour.example.com
spec:
  group: harbour.example.com
  scope: Namespaced
  names: {kind: Ferry, plural: ferries, singular: ferry}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: From, type: string, jsonPath: .spec.from}
    - {name: To, type: string, jsonPath: .spec.to}
    - {name: Capacity, type: integer, jsonPath: .spec.capacity}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [from, to]
            properties:
              from: {type: string}
              to: {type: string}
              capacity: {type: integer, minimum: 1, default: 40}
"""

FERRY = """\
apiVersion: harbour.example.com/v1
kind: Ferry
metadata: {name: morning, namespace: shop}
spec: {from: Island, to: Mainland}
"""

SUNK = """\
apiVersion: harbour.example.com/v1
kind: Ferry
metadata: {name: sunk, namespace: shop}
spec: {from: Island, to: Mainland, capacity: -3}
"""

MISSPELT = POD.replace("name: web\n  labels", "name: misspelt\n  labels").replace("ports:", "prots:")

ASK_FOR_ACCESS = """\
{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
"""

ASK_WHO_I_AM = """\
{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
"""

API: Mapping[str, str] = {
    "pod.yaml": POD,
    "ferries.yaml": FERRY_DEFINITION,
    "ferry.yaml": FERRY,
    "sunk.yaml": SUNK,
    "misspelt.yaml": MISSPELT,
    "token-request.json": ASK_FOR_ACCESS,
    "self-review.json": ASK_WHO_I_AM,
}

CLUSTER: Mapping[str, str] = {
    "web.yaml": WEB,
    "client.yaml": CLIENT,
    "life.yaml": LIFE,
    "rules.yaml": RULES,
    "db.yaml": DB,
    "pools.yaml": POOLS,
    "router.yaml": ROUTER,
    "claims.yaml": CLAIMS,
}

WITH_REGISTRY: Mapping[str, str] = {"web.yaml": WEB_PULLED, "index.html": PAGE, "registry.yml": REGISTRY_SETTINGS}
"""Where docker-registry and skopeo are installed, the first pod's image is pulled."""


def write(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
