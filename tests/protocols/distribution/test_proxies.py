"""Proxy of a URL, by the environment of a process."""

import pytest

from podwire.protocols.distribution.proxies import BadProxy, parse_proxies

BOTH = {"HTTP_PROXY": "http://plain.test:3128", "https_proxy": "ann:secret@proxy.test:8080"}
PROXY = "http://ann:secret@proxy.test:8080"


def test_each_scheme_has_its_proxy():
    proxies = parse_proxies(BOTH)
    assert proxies.find("http://reg.test/v2") == "http://plain.test:3128"
    assert proxies.find("https://reg.test/v2") == PROXY
    assert parse_proxies({"HTTP_PROXY": "p:1"}).find("https://reg.test") == ""
    assert parse_proxies({}).find("https://reg.test") == ""


def test_upper_case_comes_first():
    assert parse_proxies({"HTTPS_PROXY": "a:1", "https_proxy": "b:1"}).find("https://reg.test") == "http://a:1"


@pytest.mark.parametrize("url", ["https://localhost:5000/v2", "https://127.0.0.9/v2", "https://[::1]:5000/v2"])
def test_loopback_is_asked_directly(url):
    assert parse_proxies(BOTH).find(url) == ""


@pytest.mark.parametrize(
    ("direct", "url", "is_direct"),
    [
        ("*", "https://reg.test", True),
        ("reg.test", "https://reg.test", True),
        ("reg.test", "https://sub.reg.test", True),
        ("reg.test", "https://otherreg.test", False),
        (".reg.test", "https://sub.reg.test", True),
        (".reg.test", "https://reg.test", False),
        ("*.reg.test", "https://sub.reg.test", True),
        ("a, REG.test ,b", "https://reg.test.", True),
        ("reg.test:5000", "https://reg.test:5000", True),
        ("reg.test:5000", "https://reg.test", False),
        ("reg.test:443", "https://reg.test", True),
        ("10.0.0.0/8", "https://10.1.2.3:5000", True),
        ("10.0.0.0/8", "https://11.1.2.3:5000", False),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("10.1.2.3:80", "https://10.1.2.3", False),
        ("fd00::/8", "https://[fd00::1]:5000", True),
        ("fd00::1", "https://[fd00::1]:5000", True),
        ("[fd00::1]:5000", "https://[fd00::1]:5000", True),
        ("[fd00::1]:5001", "https://[fd00::1]:5000", False),
        ("reg.test", "https://10.1.2.3", False),
    ],
)
def test_hosts_that_are_asked_directly(direct, url, is_direct):
    assert parse_proxies(BOTH | {"NO_PROXY": direct}).find(url) == ("" if is_direct else PROXY)


@pytest.mark.parametrize("url", ["socks5://p:1080", "https://p", "http://", "http://p:x", "http://p:0"])
def test_other_proxies_are_refused_by_the_name_of_the_variable(url):
    with pytest.raises(BadProxy, match=r"^HTTPS_PROXY: is not the URL of a proxy"):
        parse_proxies({"HTTPS_PROXY": url})


def test_password_of_a_proxy_is_never_shown():
    assert "secret" not in repr(parse_proxies(BOTH))
    with pytest.raises(BadProxy) as raised:
        parse_proxies({"HTTPS_PROXY": "ftp://ann:secret@p"})
    assert "secret" not in str(raised.value)
