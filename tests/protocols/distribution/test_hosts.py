"""`hosts.toml` as containerd reads it."""

import pytest

from podwire.protocols.distribution import BadHosts, Host, Tls, default_hosts, parse_hosts
from podwire.protocols.distribution.hosts import directories


def test_a_registry_without_a_file_is_asked_by_its_own_name():
    assert default_hosts("reg.test:5000") == [Host(base="https://reg.test:5000/v2")]
    assert default_hosts("docker.io")[0].name == "registry-1.docker.io"


@pytest.mark.parametrize(
    ("registry", "plain"), [("localhost:5000", True), ("127.0.0.9", True), ("[::1]:5000", True), ("10.0.0.1", False)]
)
def test_only_loopback_may_speak_plain_http(registry, plain):
    assert default_hosts(registry)[0].plain_fallback is plain


def test_mirrors_come_first_and_the_server_last():
    text = """
        server = "https://reg.test"
        [host."https://one.test"]
        capabilities = ["pull"]
        [host."http://two.test:8080/proxy"]
        override_path = true
    """
    assert parse_hosts(text, "reg.test", "/certs") == [
        Host(base="https://one.test/v2", resolves=False, mirrors=True, gets_login=False),
        Host(base="http://two.test:8080/proxy", mirrors=True, gets_login=False),
        Host(base="https://reg.test/v2"),
    ]


def test_server_gets_the_login_whatever_its_name_and_mirrors_do_not():
    text = """
        server = "https://harbor.test"
        [host."https://one.test"]
        [host."https://harbor.test"]
        capabilities = ["pull"]
        [host."https://reg.test"]
    """
    hosts = parse_hosts(text, "reg.test", "/certs")
    assert [(host.name, host.mirrors, host.gets_login) for host in hosts] == [
        ("one.test", True, False),
        ("harbor.test", True, True),
        ("reg.test", False, True),
        ("harbor.test", True, True),
    ]


def test_certificates_are_below_the_directory_of_the_file():
    text = """
        [host."https://one.test"]
        ca = ["ca.crt", "/abs/ca.crt"]
        client = [["a.cert", "a.key"], "both.pem"]
        skip_verify = true
        [host."https://one.test".header]
        x-team = ["net", "ops"]
    """
    first, last = parse_hosts(text, "reg.test", "/certs/reg.test")
    assert first.tls == Tls(
        ca=("/certs/reg.test/ca.crt", "/abs/ca.crt"),
        client=(
            ("/certs/reg.test/a.cert", "/certs/reg.test/a.key"),
            ("/certs/reg.test/both.pem", "/certs/reg.test/both.pem"),
        ),
        verify=False,
    )
    assert first.headers == (("x-team", "net"), ("x-team", "ops"))
    assert last == Host(base="https://reg.test/v2")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("server = 1", "server: must be text"),
        ("[host]\nx = 1", 'host."x": must be a table'),
        ("host = 1", "host: must be tables"),
        ('[host."ftp://x"]', "host.\"ftp://x\": 'ftp://x' is not the URL of a registry"),
        ('[host."https://x"]\nsurprise = 1', 'host."https://x".surprise: unknown field'),
        ('[host."https://x"]\ncapabilities = ["fly"]', "capabilities: 'fly' is not one of"),
        ('[host."https://x"]\nclient = [["a","b","c"]]', "client[0]: must be a certificate"),
        ("= broken", "is not TOML"),
    ],
)
def test_a_wrong_file_names_the_field(text, field):
    with pytest.raises(BadHosts) as raised:
        parse_hosts(text, "reg.test", "/certs")
    assert field in str(raised.value)


def test_directories_of_a_registry_are_those_of_containerd():
    assert directories("reg.test:5000") == ["reg.test_5000_", "reg.test:5000", "_default"]
    assert directories("reg.test") == ["reg.test", "_default"]
