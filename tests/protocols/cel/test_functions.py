"""The functions that Kubernetes adds to CEL."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.cel import CelError, CompileError, compile_expression
from podwire.protocols.cel.functions import lists, networks, quantities, regexes, urls, versions
from podwire.protocols.cel.types import DYN, STRING


def value_of(expression):
    return compile_expression(expression, {}).run({})


@pytest.mark.parametrize(
    "truth",
    [
        "quantity('1Ki') == quantity('1024')",
        "quantity('1.5Gi').isLessThan(quantity('2Gi')) && quantity('2').isGreaterThan(quantity('1500m'))",
        "quantity('1').compareTo(quantity('2')) == -1 && quantity('1k').compareTo(quantity('1000')) == 0",
        "quantity('-1').sign() == -1 && quantity('0').sign() == 0",
        "quantity('50k').add(20).sub(quantity('100')).asInteger() == 49920",
        "quantity('50k').isInteger() && !quantity('50m').isInteger()",
        "quantity('500m').asApproximateFloat() == 0.5",
        "isQuantity('1.3G') && !isQuantity('1.3X')",
        "[1, 2, 3].sum() == 6 && [1.5, 2.0].sum() == 3.5 && [duration('1s'), duration('2s')].sum() == duration('3s')",
        "[1, 2].isSorted() && !['b', 'a'].isSorted() && [1, 1].isSorted()",
        "[3, 1].min() == 1 && ['a', 'b'].max() == 'b'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "'tacocat'.indexOf('a') == 1 && 'tacocat'.lastIndexOf('a') == 5",
        "ip('192.168.0.1').family() == 4 && ip('2001:db8::abcd').family() == 6",
        "ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && !ip('127.0.0.1').isGlobalUnicast()",
        "ip('192.168.0.1').isGlobalUnicast() && ip('fe80::1').isLinkLocalUnicast()",
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
        "!ip('224.0.1.1').isLinkLocalMulticast() && !ip('255.255.255.255').isGlobalUnicast()",
        "isIP('1.2.3.4') && !isIP('1.2.3') && !isIP('01.2.3.4') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
        "string(ip('2001:DB8::1')) == '2001:db8::1' && ip('::1') == ip('0:0::1')",
        "cidr('10.0.0.0/8').containsIP('10.2.3.4') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
        "!cidr('10.0.0.0/8').containsIP('::1')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8') != cidr('10.0.0.0/8')",
        "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.1.2.3/8').prefixLength() == 8",
        "string(cidr('2001:db8::/32')) == '2001:db8::/32'",
        "isCIDR('::/0') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
        "url('https://example.com:80/a%20b').getHost() == 'example.com:80'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://u:p@h').getHost() == 'h'",
        "url('https://example.com:80/').getPort() == '80' && url('https://example.com').getPort() == ''",
        "url('https://example.com/a%20b').getEscapedPath() == '/a%20b' && url('/a b').getEscapedPath() == '/a%20b'",
        "url('https://h/?k=1&k=2&e=').getQuery() == {'k': ['1', '2'], 'e': ['']}",
        "url('/path').getScheme() == '' && url('HTTP://h').getScheme() == 'http'",
        "isURL('https://h/p') && !isURL('h/p') && !isURL('https://a:b:c/') && !isURL('/%zz')",
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]') == ''",
        "'123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']",
        "'a1b2'.findAll('([a-z])([0-9])') == ['a1', 'b2'] && '1'.findAll('[0-9]', 0) == []",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('2.0.0').isGreaterThan(semver('2.0.0-rc.1'))",
        "semver('1.0.0-alpha.9').isLessThan(semver('1.0.0-alpha.10'))",
        "semver('1.2.3+a') == semver('1.2.3+b') && semver('1.2.3').compareTo(semver('1.2.3')) == 0",
        "semver('v1.2', true).minor() == 2 && semver('01.02.03', true).patch() == 3 && semver('1.2.3').major() == 1",
        "!format.dns1123Label().validate('my').hasValue() && format.dns1123Label().validate('My').hasValue()",
        "format.dns1035Label().validate('1a').value()[0].startsWith('a DNS-1035 label must consist of')",
        "!format.dns1123LabelPrefix().validate('my-').hasValue() && format.dns1123Label().validate('my-').hasValue()",
        "!format.dns1123Subdomain().validate('a.b').hasValue() && !format.qualifiedName().validate('a.b/c').hasValue()",
        "!format.labelValue().validate('').hasValue() && format.labelValue().validate('-').hasValue()",
        "format.uuid().validate('x').orValue([]) == ['does not match the UUID format']",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('!').value() == ['invalid base64']",
        "!format.date().validate('2024-02-29').hasValue() && format.date().validate('2023-02-29').hasValue()",
        "!format.datetime().validate('2024-02-29T12:00:00Z').hasValue() && format.datetime().validate('').hasValue()",
        "!format.uri().validate('https://h/').hasValue() && format.uri().validate('h').hasValue()",
        "format.named('dns1123Label').hasValue() && !format.named('nothing').hasValue()",
        "!format.named('dns1123Label').value().validate('a').hasValue()",
        "['a', 'B'].map(n, format.dns1123Label().validate(n).hasValue()) == [false, true]",
        "format.date() == format.date() && format.date() != format.byte()",
        "isSemver('1.0.0') && !isSemver('1.0') && isSemver('1.0', true) && !isSemver('200K')",
    ],
)
def test_this_is_true(truth):
    assert value_of(truth) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("quantity('500m').asInteger()", "cannot convert value to integer"),
        ("dyn([]).min()", "min called on empty list"),
        ("dyn([]).max()", "max called on empty list"),
        ("[9223372036854775807, 1].sum()", "integer overflow"),
        ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'),
        ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ("cidr('1')", """network address parse error during conversion from string: netip.ParsePrefix("1"): no '/'"""),
        ("'ab'.findAll('a*')", "findAll is not supported for patterns that match nothing at all"),
        ("url('h')", 'URL parse error during conversion from string: parse "h": invalid URI for request'),
        ("dyn(quantity('1')).isLessThan(dyn(semver('1.0.0')))", "no such overload"),
    ],
)  # fmt: skip
def test_an_invalid_argument_is_an_error(expression, message):
    assert value_of(expression) == CelError(message)


@pytest.mark.parametrize(
    "expression",
    [
        "quantity('1').isLessThan(semver('1.0.0'))",
        "quantity(1)",
        "[ip('::1')].isSorted()",
        "ip('::1').masked()",
        "['a'].sum()",
    ],
)
def test_type_errors_are_reported_at_compilation(expression):
    with pytest.raises(CompileError, match="found no matching overload"):
        compile_expression(expression, {})


@pytest.mark.parametrize(
    ("pattern", "ungrouped"),
    [
        ("(a)(b)", "(?:a)(?:b)"),
        ("(?:a)(?i)(?P<n>b)(?<m>c)", "(?:a)(?i)(?:b)(?:c)"),
        (r"\((a)[(]", r"\((?:a)[(]"),
        ("[](](b)", "[](](?:b)"),
        (r"\Q(\E(b)", r"\Q(\E(?:b)"),
        ("[[:alpha:](](b)", "[[:alpha:](](?:b)"),
    ],
)
def test_groups_do_not_change_the_match(pattern, ungrouped):
    assert regexes.ungrouped(pattern) == ungrouped


@given(st.text(alphabet="ab(c", max_size=20), st.sampled_from(["a+", "(a)(b)?", "[(]", "b|c", "c*"]))
def test_find_matches_what_python_matches(text, pattern):
    program = compile_expression("s.find(p)", {"s": STRING, "p": STRING})
    found = re.search(pattern, text)
    assert program.run({"s": text, "p": pattern}) == (found[0] if found else "")


PARSERS = {
    "cidr": networks.parse_cidr,
    "ip": networks.parse_ip,
    "quantity": quantities.Quantity.parse,
    "semver": versions.parse,
    "url": urls.parse_url,
}


@pytest.mark.parametrize("name", PARSERS)
@given(text=st.text(max_size=40) | st.text(alphabet="0123456789.:/abfv-+[]%", max_size=40))
def test_any_text_is_parsed_or_rejected(name, text):
    outcome = compile_expression(f"{name}(s) == {name}(s)", {"s": STRING}).run({"s": text})
    assert outcome is True or isinstance(outcome, CelError)


@given(st.lists(st.integers(-100, 100)))
def test_order_and_places_agree_with_pythons(values):
    assert lists.is_sorted(values) == (sorted(values) == values)
    outcome = compile_expression("l.isSorted()", {"l": DYN}).run({"l": values})
    assert outcome is lists.is_sorted(values)
