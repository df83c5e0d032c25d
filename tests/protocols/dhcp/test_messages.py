"""Messages and options as bytes."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.dhcp import messages, options
from podwire.protocols.dhcp.messages import Message, Type, decode, encode
from podwire.protocols.dhcp.options import Malformed, Reader, Route

MAC = bytes.fromhex("020000000001")
COOKIE = bytes((0x63, 0x82, 0x53, 0x63))
HEAD = (
    bytes((1, 1, 6, 0))
    + bytes.fromhex("3903f326")
    + bytes((0, 5, 0x80, 0))
    + bytes((10, 0, 0, 7))
    + bytes(4)
    + bytes(4)
    + bytes(4)
    + MAC
    + bytes(10)
    + bytes(64)
    + bytes(128)
)
"""Of a request: op, hardware and its length, hops, xid, secs, flags, four addresses, chaddr, sname, file."""
DISCOVER = (HEAD + COOKIE + bytes((53, 1, 1, 12, 3)) + b"web" + bytes((61, 2, 0, 9, 255))).ljust(300, b"\0")
VALUE = Message(
    op=1,
    xid=0x3903F326,
    mac=MAC,
    secs=5,
    broadcast=True,
    ciaddr=IPv4Address("10.0.0.7"),
    options={53: b"\1", 12: b"web", 61: b"\0\x09"},
)


def test_a_message_is_these_bytes():
    assert encode(VALUE) == DISCOVER


def test_these_bytes_are_a_message():
    assert decode(DISCOVER) == VALUE
    assert decode(DISCOVER).type is Type.DISCOVER


def addresses():
    return st.integers(0, 2**32 - 1).map(IPv4Address)


@given(
    st.builds(
        Message,
        op=st.sampled_from([1, 2]),
        xid=st.integers(0, 2**32 - 1),
        mac=st.binary(min_size=6, max_size=6),
        secs=st.integers(0, 2**16 - 1),
        broadcast=st.booleans(),
        ciaddr=addresses(),
        yiaddr=addresses(),
        siaddr=addresses(),
        giaddr=addresses(),
        options=st.dictionaries(st.integers(1, 254).filter(lambda code: code != 52), st.binary(max_size=700)),
    )
)
def test_messages_survive_a_round_trip(message):
    assert decode(encode(message)) == message


@given(st.binary(max_size=600))
def test_nothing_that_comes_makes_a_client_fall(data):
    for item in (data, DISCOVER[:240] + data, DISCOVER[: len(data) % 300]):
        try:
            read = decode(item)
        except Malformed:
            continue
        assert isinstance(read, Message)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(DISCOVER[:239], id="no cookie"),
        pytest.param(DISCOVER[:236] + bytes(64), id="another cookie"),
        pytest.param(b"\3" + DISCOVER[1:], id="neither request nor reply"),
        pytest.param(DISCOVER[:1] + b"\x20" + DISCOVER[2:], id="no Ethernet"),
        pytest.param(DISCOVER[:2] + b"\xff" + DISCOVER[3:], id="a hardware address that is too long"),
        pytest.param(DISCOVER[:240] + bytes((53, 1)), id="an option without its value"),
        pytest.param(DISCOVER[:240] + bytes((53,)), id="an option without its length"),
        pytest.param(DISCOVER[:240] + bytes((12, 255)) + b"short", id="an option beyond the end"),
    ],
)
def test_an_invalid_message_is_rejected(data):
    with pytest.raises(Malformed):
        decode(data)


def test_options_go_on_in_the_fields_of_file_and_server_name():
    head = bytearray(DISCOVER[:240])
    head[44:108] = bytes((15, 3)).ljust(2) + b"lab" + b"\xff" + bytes(58)
    head[108:236] = bytes((12, 2)) + b"we" + bytes((255,)) + bytes(123)
    message = decode(bytes(head) + bytes((53, 1, 2, 52, 1, 3, 12, 1)) + b"x" + b"\xff")
    assert message.options == {53: b"\2", 12: b"xwe", 15: b"lab"}


def test_the_fields_of_file_and_server_name_are_read_once():
    """However often they claim that there is more."""
    head = bytearray(DISCOVER[:240])
    head[44:108] = head[108:172] = bytes((52, 1, 3, 255)) + bytes(60)
    assert decode(bytes(head) + bytes((53, 1, 2, 52, 1, 3, 255))).options[53] == b"\2"


@pytest.mark.parametrize("reported", [b"", b"\1\1", b"\0", b"\x63"])
def test_an_unknown_message_type_is_none(reported):
    assert Message(op=2, xid=1, mac=MAC, options={53: reported}).type is None


def test_a_long_option_is_split():
    written = options.encode({43: b"a" * 300})
    assert written == bytes((43, 255)) + b"a" * 255 + bytes((43, 45)) + b"a" * 45 + b"\xff"


@pytest.mark.parametrize(
    ("data", "routes"),
    [
        pytest.param("00 0a000001", ["0.0.0.0/0"], id="default"),
        pytest.param("08 0a 0a000001", ["10.0.0.0/8"], id="8"),
        pytest.param("18 0a0000 0a000001", ["10.0.0.0/24"], id="24"),
        pytest.param("10 0a11 0a000001", ["10.17.0.0/16"], id="16"),
        pytest.param("19 0ae50080 0a000001", ["10.229.0.128/25"], id="25"),
        pytest.param("20 0ac67a2f 0a000001", ["10.198.122.47/32"], id="32"),
        pytest.param("10 0a11 0a000001 00 0a000001", ["10.17.0.0/16", "0.0.0.0/0"], id="two"),
        pytest.param("07 0b 0a000001", ["10.0.0.0/7"], id="with bits beyond the prefix"),
    ],
)
def test_classless_routes_are_read(data, routes):
    read = options.classless_routes(bytes.fromhex(data.replace(" ", "")))
    assert [str(item.destination) for item in read] == routes
    assert {item.gateway for item in read} == {IPv4Address("10.0.0.1")}


def test_a_route_without_a_router_is_on_the_link():
    assert options.classless_routes(bytes((8, 10, 0, 0, 0, 0))) == (Route(IPv4Network("10.0.0.0/8"), None),)


def test_static_routes_have_the_classes_of_their_time():
    result = [(10, 0, 0, 0), (172, 16, 0, 0), (192, 168, 1, 0), (192, 168, 1, 7), (0, 0, 0, 0)]
    read = options.static_routes(b"".join(bytes(item) + bytes((10, 0, 0, 1)) for item in result))
    assert [str(item.destination) for item in read] == [
        "10.0.0.0/8",
        "172.16.0.0/16",
        "192.168.1.0/24",
        "192.168.1.7/32",
    ]


def test_names_are_compressed_as_in_dns():
    data = b"\3eng\5apple\3com\0\x09marketing\xc0\x04"
    assert options.search(data) == ("eng.apple.com", "marketing.apple.com")


@pytest.mark.parametrize(
    ("read", "data"),
    [
        pytest.param(options.search, b"\xc0\x00", id="a pointer to itself"),
        pytest.param(options.search, b"\3eng\xc0\x00", id="a loop"),
        pytest.param(options.search, b"\3eng\xc0\x09", id="a pointer beyond the end"),
        pytest.param(options.search, b"\xc0", id="half a pointer"),
        pytest.param(options.search, b"\3en", id="a label cut off"),
        pytest.param(options.search, b"\3eng", id="a name without an end"),
        pytest.param(options.search, b"\x40" + b"a" * 64 + b"\0", id="a label too long"),
        pytest.param(options.search, (b"\x3f" + b"a" * 63) * 5 + b"\0", id="a name too long"),
        pytest.param(options.search, b"\1a\0" * 100, id="too many names"),
        pytest.param(options.search, b"\3a b\0", id="a space in a name"),
        pytest.param(options.classless_routes, b"", id="no routes"),
        pytest.param(options.classless_routes, b"\x21" + bytes(9), id="a prefix too long"),
        pytest.param(options.classless_routes, b"\x18\x0a\0\0\x0a", id="a router cut off"),
        pytest.param(options.static_routes, bytes(7), id="half a pair"),
        pytest.param(options.ip, bytes(5), id="five bytes of an address"),
        pytest.param(options.ips, bytes(6), id="an address and a half"),
        pytest.param(options.ips, b"", id="no addresses"),
        pytest.param(options.u16, b"\1", id="half a number"),
        pytest.param(options.u32, b"\1\2", id="half a large number"),
        pytest.param(options.prefix, bytes((255, 0, 255, 0)), id="a mask with holes"),
        pytest.param(options.text, b"evil\nnameserver 6.6.6.6", id="a name of two lines"),
        pytest.param(options.text, b"\xff\xfe", id="no ASCII"),
    ],
)
def test_a_malformed_option_counts_as_absent(read, data):
    with pytest.raises(Malformed):
        read(data)
    reader = Reader({1: data})
    assert reader(1, read, None) is None
    assert reader.unreadable == [1]


@given(st.binary(max_size=300))
def test_every_reader_ends(data):
    for read in (options.search, options.classless_routes, options.static_routes, options.text, options.prefix):
        Reader({1: data})(1, read, None)


@given(st.binary(min_size=1, max_size=80).map(lambda data: bytes(item % 8 | 0xC0 * (item % 3 == 0) for item in data)))
def test_pointers_everywhere_end_too(data):
    Reader({1: data})(1, options.search, None)


@pytest.mark.parametrize("length", range(33))
def test_every_mask_has_its_length(length):
    assert options.prefix(IPv4Network((0, length)).netmask.packed) == length


def test_ports_and_addresses_are_those_of_the_rfc():
    assert (messages.SERVER_PORT, messages.CLIENT_PORT, str(messages.EVERYBODY)) == (67, 68, "255.255.255.255")
