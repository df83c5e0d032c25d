"""Names are judged with the sentences that clients know."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
HEADER = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
)


@pytest.mark.parametrize(
    ("check", "text", "problems"),
    [
        pytest.param(names.dns_label, "web-1", [], id="label"),
        pytest.param(names.dns_label, "Web", [LABEL], id="label with a capital"),
        pytest.param(names.dns_label, "", [LABEL], id="empty label"),
        pytest.param(names.dns_label, "a.b", ["must not contain dots"], id="label with a dot"),
        pytest.param(names.dns_label, "a\n", [LABEL], id="label and a line end"),
        pytest.param(names.dns_label, "a" * 64, ["must be no more than 63 characters"], id="long label"),
        pytest.param(names.dns_subdomain, "a.b-c.d", [], id="subdomain"),
        pytest.param(names.dns_subdomain, "a..b", [SUBDOMAIN], id="subdomain with an empty part"),
        pytest.param(names.dns_subdomain, "a" * 254, ["must be no more than 253 characters"], id="long subdomain"),
        pytest.param(names.dns1035_label, "a1", [], id="1035 label"),
        pytest.param(names.qualified_name, "app", [], id="key"),
        pytest.param(names.qualified_name, "example.com/App_1.x", [], id="key with a prefix"),
        pytest.param(names.qualified_name, "/app", ["prefix part must be non-empty"], id="empty prefix"),
        pytest.param(names.qualified_name, "", ["name part must be non-empty", QUALIFIED], id="empty key"),
        pytest.param(names.qualified_name, "X.com/a", [f"prefix part {SUBDOMAIN}"], id="bad prefix"),
        pytest.param(names.qualified_name, "a" * 64, ["name part must be no more than 63 characters"], id="long key"),
        pytest.param(names.qualified_name, "a b", [QUALIFIED], id="key with a blank"),
        pytest.param(names.label_value, "", [], id="empty value"),
        pytest.param(names.label_value, "a b", [LABEL_VALUE], id="value with a blank"),
        pytest.param(names.config_key, "ca.crt", [], id="config key"),
        pytest.param(names.config_key, "..", ["must not be '..'"], id="config key that climbs"),
        pytest.param(names.config_key, "..x", ["must not start with '..'"], id="config key with two dots"),
        pytest.param(names.env_var_name, "A.b-c d", [], id="variable of printable characters"),
        pytest.param(names.env_var_name, "", ["environment variable name must be non-empty"], id="empty variable"),
        pytest.param(names.port_name, "http", [], id="port"),
        pytest.param(names.port_name, "80", ["must contain at least one letter (a-z)"], id="port of digits"),
        pytest.param(names.port_name, "a--b", ["must not contain consecutive hyphens"], id="port with two hyphens"),
        pytest.param(names.port_name, "a-", ["must not begin or end with a hyphen"], id="port ending in a hyphen"),
        pytest.param(names.port_name, "a" * 16, ["must be no more than 15 characters"], id="long port"),
        pytest.param(names.path_segment, "a b:c", [], id="segment"),
        pytest.param(names.path_segment, "a\0", ["may not contain '\0'"], id="segment with NUL"),
        pytest.param(names.path_segment, "a" * 4097, ["must be no more than 4096 characters"], id="long segment"),
        pytest.param(names.path_segment, "..", ["may not be '..'"], id="segment that climbs"),
        pytest.param(names.path_segment, "a/b%", ["may not contain '/'", "may not contain '%'"], id="two segments"),
        pytest.param(names.c_identifier, "_a1", [], id="identifier"),
        pytest.param(names.percent, "10%", [], id="percent"),
        pytest.param(names.http_header_name, "X-A", [], id="header"),
        pytest.param(
            names.http_header_name,
            "X A",
            [HEADER],
            id="header with a blank",
        ),
    ],
)
def test_names_are_validated(check, text, problems):
    assert check(text) == problems


def test_a_key_with_three_parts_is_invalid():
    (problem,) = names.qualified_name("a/b/c")
    assert problem.startswith("a valid label key must consist of alphanumeric characters")
    assert problem.endswith("with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("10.0.0.1", [], id="v4"),
        pytest.param("2001:db8::1", [], id="v6"),
        pytest.param("010.0.0.1", ["must not have leading 0s"], id="leading zero"),
        pytest.param("010.0.0", ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"], id="three parts"),
        pytest.param("fe80::1%eth0", ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"], id="zone"),
        pytest.param("::ffff:1.2.3.4", ["must not be an IPv4-mapped IPv6 address"], id="mapped"),
    ],
)
def test_addresses(text, problems):
    assert names.ip(text) == problems
    assert names.is_ip(text) is not bool(problems)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("10.0.0.0/8", None, id="v4"),
        pytest.param("::/0", None, id="v6"),
        pytest.param("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)", id="no length"),
        pytest.param("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)", id="too long"),
        pytest.param("10.0.0.0/08", "must not have leading 0s in IP or prefix length", id="leading zero"),
        pytest.param("010.0.0.0/8", "must not have leading 0s in IP or prefix length", id="leading zero in address"),
        pytest.param("10.0.0.1/8", "must not have bits set beyond the prefix length", id="host bits"),
        pytest.param("::ffff:1.2.3.0/120", "must not have an IPv4-mapped IPv6 address", id="mapped"),
    ],
)
def test_networks(text, problem):
    assert names.cidr(text) == ([problem] if problem else [])


@given(st.text(min_size=0, max_size=80), st.integers())
def test_a_generated_name_fits_into_a_label_and_keeps_its_base(base, seed):
    name = names.generate_name(base, Random(seed))
    assert len(name) <= 63
    assert name[:-5] == base[:58]
    assert set(name[-5:]) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_a_prefix_may_end_in_the_dash_that_its_suffix_follows():
    check = names.as_prefix(names.dns_label)
    assert check("web-") == []
    assert check("web_") == [LABEL]
    assert check("-") == [LABEL]
