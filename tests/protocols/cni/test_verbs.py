"""Environments, arguments, versions, errors: the small words of CNI."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.cni import args, errors, versions
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.verbs import VERBS, Invocation, invocation, is_id, is_ifname

ids = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,80}", fullmatch=True)
ifnames = st.text(min_size=1, max_size=15).filter(is_ifname)


@given(st.sampled_from(["ADD", "DEL", "CHECK"]), ids, ifnames)
def test_a_plugin_reads_the_environment_that_a_runtime_sets(command, id_, ifname):
    call = Invocation(command, id_, "/run/netns/x", ifname, "A=B", "/opt/cni/bin")
    assert invocation(call.environment()) == call


def test_verbs_without_a_container_get_none():
    assert set(Invocation("STATUS", "c", "n", "i").environment()) == {"CNI_COMMAND", "CNI_ARGS", "CNI_PATH"}


def test_an_error_names_the_missing_variables():
    for command, verb in VERBS.items():
        if verb.needs:
            with pytest.raises(CniError) as caught:
                invocation({"CNI_COMMAND": command})
            assert caught.value.code == Code.BAD_ENVIRONMENT
            assert all(need in caught.value.msg for need in verb.needs)
    assert invocation({"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0"}).netns == ""


@pytest.mark.parametrize("text", ["", "a/b", ".a", "-a", "_a", "a b", "a\n", "ä", "a;b", None, 5, "../a", "a\0"])
def test_invalid_container_ids_are_rejected(text):
    assert not is_id(text)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a:b", "a b", "a\t", "eth%d", "x" * 16, "ääääääää", "a\0"])
def test_invalid_interface_names_are_rejected(text):
    assert not is_ifname(text)


pairs = st.dictionaries(
    st.text("abcXYZ_", min_size=1).filter(lambda each: each != args.IGNORE_UNKNOWN), st.text("abc123/:.", max_size=9)
)


@given(pairs)
def test_arguments_are_read_as_they_were_written(given_pairs):
    assert args.parsed(args.formatted(given_pairs), given_pairs) == given_pairs


@pytest.mark.parametrize("text", ["A", "A=1=2", "=1", "A=1;", ";", "B=1", "IgnoreUnknown=x"])
def test_malformed_or_unknown_arguments_are_rejected(text):
    with pytest.raises(CniError, match="CNI_ARGS") as caught:
        args.parsed(text, ("A",))
    assert caught.value.code == Code.BAD_ENVIRONMENT


@pytest.mark.parametrize("value", ["1", "true", "T"])
def test_unknown_arguments_are_dropped_when_that_is_asked_for(value):
    assert args.parsed(f"A=1;IgnoreUnknown={value};B=2", ("A",)) == {"A": "1"}


def test_an_argument_that_would_become_two_is_refused():
    with pytest.raises(CniError):
        args.formatted({"A": "1;B=2"})


def test_versions_compare_as_numbers():
    assert versions.at_least("0.10.0", "0.4.0")
    assert not versions.at_least("0.4.0", "1.0.0")
    assert versions.newest(["0.2.0", "1.0.0", "0.4.0"]) == "1.0.0"
    assert versions.checked(None) == versions.checked("") == "0.1.0"
    assert sorted(versions.KNOWN, key=versions.parsed) == list(versions.KNOWN)


@pytest.mark.parametrize("text", ["1.0", "1.0.0.0", "v1.0.0", "1.0.0-rc1", "", " 1.0.0", "1.0.x", 1.0, None, "1.0.1٣"])
def test_invalid_versions_are_rejected(text):
    with pytest.raises(CniError) as caught:
        versions.parsed(text)
    assert caught.value.code == Code.UNDECODABLE


@given(st.integers(1, 999), st.text(), st.text())
def test_errors_travel_whole(code, msg, details):
    found = errors.decode(errors.encode(CniError(code, msg, details), "1.1.0"))
    assert found is not None
    assert (found.code, found.msg, found.details) == (code, msg, details)


@pytest.mark.parametrize("value", [None, [], {}, {"code": "7"}, {"code": True}, {"msg": "x"}, {"ips": []}])
def test_invalid_errors_are_rejected(value):
    assert errors.decode(value) is None
