"""Fields of its pod and node that a container may read."""

import pytest

from podwire.kubelet.config.fields import BadReference, field_value, quoted, resource_value
from podwire.objects.containers import ResourceFieldRef

LABELS = {"app": "web", "example.test/Tier": "front"}
ANNOTATIONS = {"b": 'says "hi"\n', "a": "über\t\x01\x7f\\"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "uid-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['example.test/Tier']", "front"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['b']", 'says "hi"\n'),
        ("metadata.labels", 'app="web"\nexample.test/Tier="front"'),
        ("metadata.annotations", 'a="über\\t\\x01\\x7f\\\\"\nb="says \\"hi\\"\\n"'),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "seller"),
        ("status.hostIP", "192.0.2.10"),
        ("status.hostIPs", "192.0.2.10,2001:db8::10"),
        ("status.podIP", "10.1.0.7"),
        ("status.podIPs", "10.1.0.7,fd00::7"),
    ],
)
def test_a_field_has_its_value(pod, node, path, value):
    asked = pod({"serviceAccountName": "seller"}, labels=LABELS, annotations=ANNOTATIONS)
    assert field_value(asked, path, node=node, pod_ips=("10.1.0.7", "fd00::7")) == value


def test_a_pod_without_addresses_has_none_and_one_on_the_nodes_network_has_the_nodes(pod, node):
    assert field_value(pod(), "status.podIP", node=node) == ""
    assert field_value(pod({"hostNetwork": True}), "status.podIP", node=node) == "192.0.2.10"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("status.phase", "unsupported fieldPath: status.phase"),
        ("metadata.name['x']", 'fieldPath "metadata.name" does not support subscript'),
        ("metadata.labels['a b']", "invalid key subscript in metadata.labels: name part must consist of"),
    ],
)
def test_a_field_that_there_is_not_is_named(pod, node, path, problem):
    with pytest.raises(BadReference) as raised:
        field_value(pod(), path, node=node)
    assert str(raised.value).startswith(problem)


def test_unprintable_characters_are_escaped_as_go_does():
    assert quoted('a"\\\a\b\f\n\r\t\v\x00\x7fü\u200b\U000e0001') == (
        '"a\\"\\\\\\a\\b\\f\\n\\r\\t\\v\\x00\\x7fü\\u200b\\U000e0001"'
    )


RESOURCES = {
    "requests": {"cpu": "250m", "memory": "100M", "hugepages-2Mi": "4Mi"},
    "limits": {"cpu": 2, "memory": "1536Mi", "ephemeral-storage": "1Gi"},
}


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "2000"),
        ("limits.memory", "1Mi", "1536"),
        ("limits.memory", "1Gi", "2"),
        ("limits.memory", "0", "1610612736"),
        ("limits.ephemeral-storage", "1Ki", "1048576"),
        ("limits.hugepages-2Mi", None, "0"),
        ("requests.cpu", None, "1"),
        ("requests.cpu", "1m", "250"),
        ("requests.memory", "1k", "100000"),
        ("requests.hugepages-2Mi", "1Mi", "4"),
        ("requests.ephemeral-storage", None, "0"),
    ],
)
def test_a_resource_is_counted_in_units_of_its_divisor_and_rounded_up(pod, node, resource, divisor, value):
    asked = pod(container={"resources": RESOURCES})
    ref = ResourceFieldRef(resource=resource, divisor=divisor)
    assert resource_value(asked, asked.spec.containers[0], ref, node) == value


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", "1m", "3500"),
        ("limits.cpu", None, "4"),
        ("limits.memory", "1Gi", "7"),
        ("limits.ephemeral-storage", "1Gi", "90"),
        ("requests.cpu", None, "0"),
    ],
)
def test_without_a_limit_the_allocatable_amount_is_used(pod, node, resource, divisor, value):
    asked = pod()
    assert (
        resource_value(asked, asked.spec.containers[0], ResourceFieldRef(resource=resource, divisor=divisor), node)
        == value
    )


def test_another_container_is_asked_by_its_name(pod, node):
    asked = pod({"initContainers": [{"name": "warm", "image": "a:1", "resources": RESOURCES}]})
    ref = ResourceFieldRef(resource="limits.cpu", container_name="warm")
    assert resource_value(asked, None, ref, node) == "2"
    assert resource_value(asked, asked.spec.containers[0], ref, node) == "2"


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        ({"resource": "limits.cpu", "container_name": "gone"}, "container gone not found"),
        ({"resource": "limits.gpu"}, "unsupported container resource : limits.gpu"),
        ({"resource": "cpu"}, "unsupported container resource : cpu"),
    ],
)
def test_a_resource_that_there_is_not_is_named(pod, node, ref, problem):
    asked = pod()
    with pytest.raises(BadReference, match=f"^{problem}$"):
        resource_value(asked, asked.spec.containers[0], ResourceFieldRef(**ref), node)
