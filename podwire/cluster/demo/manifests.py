"""What the demo applies, as files that a visitor may read and change."""

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
      mkdir /www && echo "hello from $(hostname)" > /www/index.html
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
    - {name: Seats, type: integer, jsonPath: .spec.seats}
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
              seats: {type: integer, minimum: 1, default: 40}
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
spec: {from: Island, to: Mainland, seats: -3}
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

CLUSTER: Mapping[str, str] = {"web.yaml": WEB, "client.yaml": CLIENT}


def write(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
