"""The variables that a container sees."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as some

from podwire.kubelet.config.environment import ConfigError, Need, environment, expand, needs
from podwire.kubelet.config.services import service_variables


def config_map(name, **data):
    return {"metadata": {"name": name}, "data": data}


def secret(name, **data):
    encoded = {key: base64.b64encode(each).decode() for key, each in data.items()}
    return {"metadata": {"name": name}, "data": encoded}


def service(name, address, *ports, namespace="shop"):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address, "ports": list(ports)}}


CONFIG_MAPS = {"settings": config_map("settings", COLOR="red", SIZE="xl"), "gone": None}
SECRETS = {"keys": secret("keys", TOKEN=b"s3cret", RAW=b"\xff\x00")}


def env_of(pod, node, spec=None, services=(), **container):
    asked = pod(spec, container=container)
    return environment(
        asked, asked.spec.containers[0], node=node, pod_ips=("10.1.0.7",),
        config_maps=CONFIG_MAPS, secrets=SECRETS, services=services,
    )  # fmt: skip


def value_from(**source):
    return {"name": "X", "valueFrom": source}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        pytest.param([{"name": "A", "value": "1"}], {"A": "1"}, id="a plain value"),
        pytest.param([{"name": "A"}], {"A": ""}, id="no value at all"),
        pytest.param(
            [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(A) $$(A) $(C)"}, {"name": "C", "value": "3"}],
            {"A": "1", "B": "11 $(A) $(C)", "C": "3"},
            id="earlier variables are seen, later ones not",
        ),
        pytest.param(
            [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}], {"A": "12"}, id="the last one wins"
        ),
        pytest.param(
            [{**value_from(configMapKeyRef={"name": "gone", "key": "A"}), "value": "mine"}],
            {"X": "mine"},
            id="a value goes before where it might come from",
        ),
    ],
)
def test_variables_by_name(pod, node, variables, found):
    assert env_of(pod, node, env=variables) == (found, ())


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "10.1.0.7"),
        ({"resourceFieldRef": {"resource": "limits.memory"}}, str(7 << 30)),
        ({"configMapKeyRef": {"name": "settings", "key": "COLOR"}}, "red"),
        ({"secretKeyRef": {"name": "keys", "key": "TOKEN"}}, "s3cret"),
        ({"secretKeyRef": {"name": "keys", "key": "RAW"}}, "\udcff\x00"),
    ],
)
def test_a_value_comes_from_the_source_of_the_variable(pod, node, source, value):
    assert env_of(pod, node, env=[value_from(**source)]) == ({"X": value}, ())


@pytest.mark.parametrize(
    "source",
    [
        {"configMapKeyRef": {"name": "settings", "key": "NONE", "optional": True}},
        {"configMapKeyRef": {"name": "gone", "key": "A", "optional": True}},
        {"secretKeyRef": {"name": "keys", "key": "NONE", "optional": True}},
        {"secretKeyRef": {"name": "nowhere", "key": "A", "optional": True}},
    ],
)
def test_a_missing_optional_source_leaves_no_variable(pod, node, source):
    assert env_of(pod, node, env=[value_from(**source)]) == ({}, ())


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "A"}}, 'configmap "gone" not found'),
        ({"secretKeyRef": {"name": "nowhere", "key": "A"}}, 'secret "nowhere" not found'),
        ({"configMapKeyRef": {"name": "settings", "key": "A"}}, "couldn't find key A in ConfigMap shop/settings"),
        ({"secretKeyRef": {"name": "keys", "key": "A"}}, "couldn't find key A in Secret shop/keys"),
        ({"fieldRef": {"fieldPath": "spec.oops"}}, "unsupported fieldPath: spec.oops"),
        ({"resourceFieldRef": {"resource": "limits.oops"}}, "unsupported container resource : limits.oops"),
    ],
)
def test_a_missing_key_is_reported_in_upstreams_words(pod, node, source, problem):
    with pytest.raises(ConfigError) as raised:
        env_of(pod, node, env=[value_from(**source)])
    assert str(raised.value) == problem


def test_whole_objects_come_before_named_variables_and_later_ones_win(pod, node):
    found, warnings = env_of(
        pod,
        node,
        envFrom=[
            {"configMapRef": {"name": "settings"}},
            {"configMapRef": {"name": "gone", "optional": True}},
            {"prefix": "KEY_", "secretRef": {"name": "keys"}},
        ],
        env=[{"name": "SIZE", "value": "small"}, {"name": "ALL", "value": "$(COLOR) $(KEY_TOKEN) $(SIZE)"}],
    )
    assert found == {
        "COLOR": "red", "SIZE": "small", "KEY_TOKEN": "s3cret", "KEY_RAW": "\udcff\x00", "ALL": "red s3cret small",
    }  # fmt: skip
    assert warnings == ()


def test_a_missing_object_is_reported(pod, node):
    with pytest.raises(ConfigError, match=r'^configmap "gone" not found$'):
        env_of(pod, node, envFrom=[{"configMapRef": {"name": "gone"}}])


def test_invalid_variable_names_are_skipped_with_a_warning(pod, node):
    asked = pod(container={"envFrom": [{"configMapRef": {"name": "odd"}}]})
    odd = {"odd": {"data": {"a=b": "1", "fine.key": "2", "ä": "3"}}}
    found, warnings = environment(asked, asked.spec.containers[0], node=node, config_maps=odd, secrets={})
    assert found == {"fine.key": "2"}
    assert len(warnings) == 1
    assert warnings[0] == (
        "Keys [a=b, ä] from the EnvFrom configmap shop/odd were skipped "
        "since they are considered invalid environment variable names."
    )


def test_the_objects_that_a_container_needs_are_listed(pod):
    asked = pod(
        container={
            "envFrom": [{"configMapRef": {"name": "a", "optional": True}}, {"secretRef": {"name": "s"}}],
            "env": [
                value_from(configMapKeyRef={"name": "a", "key": "k"}),
                value_from(secretKeyRef={"name": "t", "key": "k", "optional": True}),
                value_from(fieldRef={"fieldPath": "metadata.name"}),
            ],
        }
    )
    assert set(needs(asked.spec.containers[0])) == {
        Need("ConfigMap", "a", optional=False),
        Need("Secret", "s", optional=False),
        Need("Secret", "t", optional=True),
    }


HTTP, DNS = {"name": "http", "port": 80}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}


def test_a_service_has_the_variables_of_docker_links():
    assert service_variables([service("big-shop", "10.96.0.1", HTTP, DNS)], "shop", links=True) == {
        "BIG_SHOP_SERVICE_HOST": "10.96.0.1",
        "BIG_SHOP_SERVICE_PORT": "80",
        "BIG_SHOP_SERVICE_PORT_HTTP": "80",
        "BIG_SHOP_SERVICE_PORT_DNS_UDP": "53",
        "BIG_SHOP_PORT": "tcp://10.96.0.1:80",
        "BIG_SHOP_PORT_80_TCP": "tcp://10.96.0.1:80",
        "BIG_SHOP_PORT_80_TCP_PROTO": "tcp",
        "BIG_SHOP_PORT_80_TCP_PORT": "80",
        "BIG_SHOP_PORT_80_TCP_ADDR": "10.96.0.1",
        "BIG_SHOP_PORT_53_UDP": "udp://10.96.0.1:53",
        "BIG_SHOP_PORT_53_UDP_PROTO": "udp",
        "BIG_SHOP_PORT_53_UDP_PORT": "53",
        "BIG_SHOP_PORT_53_UDP_ADDR": "10.96.0.1",
    }


def test_an_address_with_colons_is_bracketed():
    assert service_variables([service("a", "fd00::1", HTTP)], "shop", links=True)["A_PORT"] == "tcp://[fd00::1]:80"


API = service("kubernetes", "10.96.0.1", HTTP, namespace="default")
OWN = service("kubernetes", "10.96.0.9", HTTP)
NEAR = service("near", "10.96.0.2", HTTP)


@pytest.mark.parametrize(
    ("services", "links", "hosts"),
    [
        pytest.param([API, NEAR], True, {"KUBERNETES": "10.96.0.1", "NEAR": "10.96.0.2"}, id="its own"),
        pytest.param([API, NEAR], False, {"KUBERNETES": "10.96.0.1"}, id="only the API's"),
        pytest.param([service("a", "10.96.0.2", HTTP, namespace="default")], True, {}, id="none of another namespace"),
        pytest.param([service("a", "None", HTTP), service("b", "", HTTP)], True, {}, id="none without an address"),
        pytest.param([API, OWN], True, {"KUBERNETES": "10.96.0.9"}, id="its own goes before"),
        pytest.param([OWN, API], True, {"KUBERNETES": "10.96.0.9"}, id="in whatever order"),
    ],
)  # fmt: skip
def test_a_pod_gets_variables_of_the_services_of_its_namespace(services, links, hosts):
    found = service_variables(services, "shop", links=links)
    assert {name.removesuffix("_SERVICE_HOST"): each for name, each in found.items() if name.endswith("_HOST")} == hosts


def test_services_come_first_of_all(pod, node):
    shop = service("shop", "10.96.0.2", HTTP)
    found, _ = env_of(
        pod, node, services=[shop],
        env=[{"name": "URL", "value": "http://$(SHOP_SERVICE_HOST)"}, {"name": "SHOP_PORT", "value": "mine"}],
    )  # fmt: skip
    assert (found["URL"], found["SHOP_PORT"], found["SHOP_SERVICE_PORT"]) == ("http://10.96.0.2", "mine", "80")
    assert env_of(pod, node, {"enableServiceLinks": False}, services=[shop]) == ({}, ())


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$$$$(A)", "$$(A)"), ("$A", "$A"), ("$", "$"),
        ("$(", "$("), ("$()", "$()"), ("$(A", "$(A"), ("$($(A))", "$($(A))"), ("$(EMPTY)", ""),
        ("a$(A)b$(B)c", "a1b$(A)c"), ("$(NONE)", "$(NONE)"), ("$ü$(A)", "$ü1"), ("$($$", "$($"), ("$a$$b", "$a$b"),
    ],
)  # fmt: skip
def test_references_are_replaced_once(text, expanded):
    assert expand(text, {"A": "1", "B": "$(A)", "EMPTY": ""}) == expanded


texts = some.text(alphabet="$()AB x", max_size=30)


def by_hand(text: str, env: dict[str, str]) -> str:
    """The same, letter by letter."""
    made, at = "", 0
    while at < len(text):
        if text[at : at + 2] == "$$":
            made, at = made + "$", at + 2
        elif text[at : at + 2] == "$(" and ")" in text[at:]:
            end = text.index(")", at)
            made, at = made + env.get(text[at + 2 : end], text[at : end + 1]), end + 1
        else:
            made, at = made + text[at], at + 1
    return made


@given(texts, some.dictionaries(some.text("AB", min_size=1, max_size=2), texts))
def test_expanding_is_reading_from_left_to_right(text, env):
    assert expand(text, env) == by_hand(text, env)


@given(some.text())
def test_an_escaped_reference_is_unescaped(text):
    assert expand(text.replace("$", "$$"), {"A": "1"}) == text
