import copy
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.builtin.core.pod import validate as pods
from podwire.kinds.builtin.core.pod.defaults import default_pod

NGINX = """
metadata: {name: nginx, namespace: default, labels: {app: nginx}}
spec:
  containers:
  - name: nginx
    image: nginx:1.27
    ports: [{containerPort: 80, name: http}]
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {cpu: 500m, memory: 128Mi}
    readinessProbe: {httpGet: {path: /healthz, port: http}}
    volumeMounts: [{name: html, mountPath: /usr/share/nginx/html, readOnly: true}]
  volumes:
  - name: html
    configMap: {name: site, items: [{key: index.html, path: index.html}]}
"""

SIDECAR = """
metadata: {name: app-with-proxy, namespace: shop, annotations: {sidecar.istio.io/status: injected}}
spec:
  securityContext: {runAsNonRoot: true, fsGroup: 1337, seccompProfile: {type: RuntimeDefault}}
  initContainers:
  - name: istio-init
    image: proxy:1.24
    args: [istio-iptables]
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {add: [NET_ADMIN, NET_RAW], drop: [ALL]}
      runAsNonRoot: false
      runAsUser: 0
  - name: istio-proxy
    image: proxy:1.24
    restartPolicy: Always
    ports: [{containerPort: 15090, name: http-envoy-prom, protocol: TCP}]
    env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: INSTANCE_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: GOMAXPROCS, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}
    startupProbe: {httpGet: {path: /healthz/ready, port: 15021}, failureThreshold: 600, periodSeconds: 1}
    lifecycle: {preStop: {exec: {command: [pilot-agent, request, POST, drain]}}}
    resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: 10m, memory: 40Mi}}
    volumeMounts:
    - {name: token, mountPath: /var/run/secrets/tokens}
    - {name: podinfo, mountPath: /etc/istio/pod}
  containers:
  - name: app
    image: app:3
    envFrom: [{configMapRef: {name: app}}, {prefix: DB_, secretRef: {name: db, optional: true}}]
    livenessProbe: {grpc: {port: 9090}, initialDelaySeconds: 5}
    lifecycle: {preStop: {sleep: {seconds: 5}}}
  serviceAccountName: app
  volumes:
  - name: token
    projected:
      sources: [{serviceAccountToken: {audience: istio-ca, expirationSeconds: 43200, path: istio-token}}]
  - name: podinfo
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: cpu, resourceFieldRef: {containerName: app, resource: limits.cpu, divisor: 1m}}
"""

DEVICES = """
metadata: {name: trainer, namespace: ml}
spec:
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: one-gpu}
  - {name: nic, resourceClaimName: shared-nic}
  containers:
  - name: train
    image: train:1
    resources:
      claims: [{name: gpu}, {name: nic, request: rdma}]
      limits: {example.com/fpga: "1", hugepages-2Mi: 64Mi, memory: 8Gi}
  - name: watch
    image: watch:1
    resources: {claims: [{name: gpu}]}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {job: train}}}
"""

PROXY = """
metadata:
  name: kube-proxy-x7
  namespace: kube-system
  labels: {k8s-app: kube-proxy, controller-revision-hash: 6f7d8c}
  annotations: {controller.kubernetes.io/pod-deletion-cost: "-5"}
spec:
  hostNetwork: true
  hostPID: true
  priorityClassName: system-node-critical
  nodeSelector: {kubernetes.io/os: linux}
  os: {name: linux}
  dnsPolicy: None
  dnsConfig: {nameservers: [10.96.0.10], searches: [svc.cluster.local, .], options: [{name: ndots, value: "5"}]}
  hostAliases: [{ip: 127.0.0.1, hostnames: [foo.local]}]
  runtimeClassName: runc
  overhead: {cpu: 10m}
  enableServiceLinks: false
  readinessGates: [{conditionType: example.com/ready}]
  imagePullSecrets: [{name: registry}]
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}, {key: node.kubernetes.io/not-ready, effect: NoExecute, tolerationSeconds: 300}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {k8s-app: kube-proxy}}}
  containers:
  - name: kube-proxy
    image: kube-proxy:v1.36.0
    command: [/usr/local/bin/kube-proxy, --config=/var/lib/kube-proxy/config.conf]
    ports: [{containerPort: 10249, name: metrics}, {containerPort: 53, protocol: UDP}]
    securityContext: {privileged: true, procMount: Default}
    env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    volumeMounts:
    - {name: conf, mountPath: /var/lib/kube-proxy}
    - {name: lock, mountPath: /run/xtables.lock}
    - {name: modules, mountPath: /lib/modules, readOnly: true, mountPropagation: Bidirectional}
    - {name: scratch, mountPath: /scratch, subPathExpr: $(NODE_NAME)}
  volumes:
  - {name: conf, configMap: {name: kube-proxy, defaultMode: 420}}
  - {name: lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
  - {name: modules, hostPath: {path: /lib/modules}}
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        metadata: {labels: {a: b}}
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  - {name: cache, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
  - {name: creds, secret: {secretName: s, optional: true}}
  - {name: store, csi: {driver: secrets-store.csi.k8s.io, readOnly: true}}
  - {name: nfs, nfs: {server: nas, path: /export}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
"""


def defaulted(manifest):
    obj = yaml.safe_load(manifest)
    default_pod(obj)
    return obj


MANIFESTS = {"nginx": NGINX, "a sidecar": SIDECAR, "claims of devices": DEVICES, "everything on the host": PROXY}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_real_manifests_pass(manifest):
    assert [str(error) for error in pods.create(defaulted(manifest))] == []


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_a_pod_as_it_is_may_be_stored_again(manifest):
    pod = defaulted(manifest)
    assert pods.update(copy.deepcopy(pod), pod) == []
    assert pods.update_status(copy.deepcopy(pod), pod) == []
    assert pods.update_ephemeral_containers(copy.deepcopy(pod), pod) == []


def test_a_pod_without_a_spec_lacks_its_required_fields():
    assert [str(error) for error in pods.create({"metadata": {"name": "x"}})] == [
        "spec.terminationGracePeriodSeconds: Required value",
        "spec.containers: Required value",
        "spec.restartPolicy: Required value",
        "spec.dnsPolicy: Required value",
    ]


def places(value, way=()):
    """Every place of an object, with the way to it."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*way, key)
        yield from places(child, (*way, key))


def is_quantity(way):
    """Amounts are decoded, and so checked, before a pod gets here."""
    return bool({"limits", "requests", "overhead", "sizeLimit", "divisor"}.intersection(way))


PODS = [defaulted(manifest) for manifest in MANIFESTS.values()]
PLACES = [(index, way) for index, pod in enumerate(PODS) for way in places(pod) if not is_quantity(way)]
VALUES = {str: st.text(max_size=300), int: st.integers(-(2**63), 2**63 - 1), bool: st.booleans()}


@given(st.sampled_from(PLACES), st.data())
def test_any_value_of_a_field_is_accepted_or_rejected(place, data):
    """A value of the right type, however odd, is taken or refused; it never breaks the validation."""
    index, (*way, last) = place
    pod = copy.deepcopy(PODS[index])
    holder = pod
    for step in way:
        holder = holder[step]
    kind = type(holder[last])
    if kind in VALUES:
        holder[last] = data.draw(VALUES[kind])
    elif kind is list and data.draw(st.booleans()):
        holder[last] = holder[last] * 2
    else:
        holder[last] = kind()
    for error in pods.create(pod) + pods.update(pod, PODS[index]) + pods.update_status(pod, PODS[index]):
        assert str(error)


@given(st.sampled_from(PLACES))
def test_a_pod_without_any_of_its_fields_is_accepted_or_rejected(place):
    index, (*way, last) = place
    pod = copy.deepcopy(PODS[index])
    holder = pod
    for step in way:
        holder = holder[step]
    del holder[last]
    for error in pods.create(pod) + pods.update(pod, PODS[index]) + pods.update(PODS[index], pod):
        assert str(error)


def test_a_huge_pod_is_validated_in_linear_time(spoiled):
    many = range(3000)
    container = {"image": "x", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
    statuses = [{"name": f"c{item}", "state": {"terminated": {"exitCode": 0}}} for item in many]
    pod = spoiled(
        {
            "metadata.annotations": {
                f"container.apparmor.security.beta.kubernetes.io/c{item}": "unconfined" for item in many
            },
            "spec.resourceClaims": [{"name": f"r{item}", "resourceClaimName": "x"} for item in many],
            "spec.volumes": [{"name": f"v{item}", "emptyDir": {}} for item in many],
            "spec.tolerations": [{"key": f"t{item}", "operator": "Exists"} for item in many],
            "spec.containers": [{**container, "name": f"c{item}"} for item in many],
            "spec.containers[0].resources": {"claims": [{"name": f"r{item}"} for item in many]},
            "spec.containers[0].volumeMounts": [{"name": f"v{item}", "mountPath": f"/{item}"} for item in many],
            "spec.topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": f"k{item}", "whenUnsatisfiable": "DoNotSchedule"} for item in many
            ],
            "status.containerStatuses": statuses,
        }
    )
    running = copy.deepcopy(pod)
    running["spec"]["tolerations"].append({"operator": "Exists"})
    running["status"]["containerStatuses"] = [{"name": status["name"], "state": {"running": {}}} for status in statuses]
    started = time.perf_counter()
    assert pods.create(pod) == []
    assert pods.update(running, pod) == []
    assert pods.update_status(running, pod) == []
    assert time.perf_counter() - started < 2
