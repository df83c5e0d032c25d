"""get and list: which revision, page by page, and what a token may and may not open."""

import asyncio
import base64
from itertools import chain

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.apiserver.limits import Limits
from podwire.apiserver.read import lists
from podwire.protocols.k8sapi.status import ApiError
from podwire.store.memory import MemoryStore

CONFIGS = "/api/v1/namespaces/default/configmaps"
EVERYWHERE = "/api/v1/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
async def five(api, config):
    """A server with the config maps a to e."""
    for name in "abcde":
        await api.made(CONFIGS, config(name))
    return api


def opened(token):
    return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))


def sealed(**token):
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


# --- the shape of a list ----------------------------------------------------------------------------------------------


async def test_a_list_has_its_kind_and_its_revision(five):
    reply = await five.get(CONFIGS)

    assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert reply.body["metadata"] == {"resourceVersion": str(five.store.revision)}
    assert reply.names == list("abcde")


async def test_an_empty_list_has_items(api):
    assert (await api.get(CONFIGS)).body["items"] == []


async def test_a_list_of_all_namespaces_is_in_the_order_of_namespace_and_name(five, config):
    await five.made("/api/v1/namespaces/kube-public/configmaps", config("a"))

    reply = await five.get(EVERYWHERE)

    places = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in reply.body["items"]]
    assert places == sorted(places)
    assert {("default", "a"), ("kube-public", "a")} <= {*places}


async def test_a_namespace_does_not_show_objects_of_one_with_the_same_prefix(api, config):
    for name in ("a", "ab", "a-b"):
        await api.made("/api/v1/namespaces", {"metadata": {"name": name}})
        await api.made(f"/api/v1/namespaces/{name}/configmaps", config(f"in-{name}"))

    assert (await api.get("/api/v1/namespaces/a/configmaps")).names == ["in-a"]


async def test_a_namespace_that_is_not_there_is_empty(api):
    reply = await api.get("/api/v1/namespaces/nowhere/configmaps")

    assert (reply.status, reply.names) == (200, [])


async def test_an_object_that_is_not_there_is_not_found(api):
    reply = await api.get(f"{CONFIGS}/one")

    assert reply.status == 404
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "one" not found',
        "reason": "NotFound",
        "details": {"name": "one", "kind": "configmaps"},
        "code": 404,
    }


# --- revisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?resourceVersion=", "?resourceVersion=0", "?resourceVersion=1"])
async def test_an_old_revision_or_none_gets_the_present(five, query):
    reply = await five.get(f"{CONFIGS}{query}")

    assert reply.names == list("abcde")
    assert reply.version == str(five.store.revision)


async def test_exactly_a_revision_gets_the_past(five):
    then = five.store.revision
    await five.delete(f"{CONFIGS}/b")
    await five.patch(f"{CONFIGS}/c", {"data": {"new": "1"}})

    reply = await five.get(f"{CONFIGS}?resourceVersion={then}&resourceVersionMatch=Exact")

    assert reply.names == list("abcde")
    assert reply.version == str(then)
    assert "data" not in reply.body["items"][2]


async def test_exactly_a_revision_holds_for_a_list_by_name_too(five):
    then = five.store.revision
    await five.delete(f"{CONFIGS}/b")
    exact = f"resourceVersion={then}&resourceVersionMatch=Exact"

    reply = await five.get(f"{CONFIGS}?fieldSelector=metadata.name%3Db&{exact}")

    assert reply.names == ["b"]
    assert reply.version == str(then)


async def test_a_page_of_a_revision_is_exact_without_saying_so(five):
    then = five.store.revision
    await five.delete(f"{CONFIGS}/a")

    page = await five.get(f"{CONFIGS}?limit=2&resourceVersion={then}")
    no_older = await five.get(f"{CONFIGS}?limit=2&resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    whole = await five.get(f"{CONFIGS}?resourceVersion={then}")

    assert (page.names, page.version) == (["a", "b"], str(then))
    assert no_older.names == ["b", "c"]
    assert whole.names == list("bcde")


async def test_exactly_a_revision_that_is_forgotten_is_expired(five):
    then = five.store.revision - 3
    await five.store.compact(five.store.revision)

    reply = await five.get(f"{CONFIGS}?resourceVersion={then}&resourceVersionMatch=Exact")

    assert (reply.status, reply.body["reason"]) == (410, "Expired")
    assert "continue" not in reply.body["metadata"]


@pytest.mark.parametrize("url", [CONFIGS, f"{CONFIGS}/a", f"{CONFIGS}?fieldSelector=metadata.name%3Da"])
async def test_a_revision_of_the_future_times_out(impatient, url):
    mark = "&" if "?" in url else "?"

    reply = await impatient.get(f"{url}{mark}resourceVersion=999999")

    assert (reply.status, reply.body["reason"]) == (504, "Timeout")
    assert reply.message == f"Timeout: Too large resource version: 999999, current: {impatient.store.revision}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert reply.body["details"] == {"causes": causes, "retryAfterSeconds": 1}
    assert reply.headers["retry-after"] == "1"


async def test_exactly_a_revision_of_the_future_times_out_too(five):
    reply = await five.get(f"{CONFIGS}?resourceVersion=999999&resourceVersionMatch=Exact")

    assert reply.status == 504


async def test_a_revision_that_comes_in_time_is_waited_for(five, config):
    wanted = five.store.revision + 2
    waiting = asyncio.create_task(five.get(f"{CONFIGS}?resourceVersion={wanted}"))
    await asyncio.sleep(0)

    await five.made(CONFIGS, config("f"))
    assert not waiting.done()
    await five.made(SECRETS, {"metadata": {"name": "elsewhere"}})

    reply = await waiting
    assert reply.names == list("abcdef")
    assert int(reply.version) >= wanted


@pytest.mark.parametrize(
    ("query", "said"),
    [
        pytest.param("resourceVersionMatch=Exact", "is forbidden unless resourceVersion is provided", id="no revision"),
        pytest.param(
            "resourceVersion=0&resourceVersionMatch=Exact",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            id="exactly any",
        ),
        pytest.param("resourceVersion=5&resourceVersionMatch=Roughly", "Unsupported value", id="unknown"),
        pytest.param(
            "resourceVersion=5&resourceVersionMatch=NotOlderThan&continue=any",
            "resourceVersionMatch is forbidden when continue is provided",
            id="with a token",
        ),
        pytest.param("sendInitialEvents=true", "sendInitialEvents is forbidden for list", id="initial events"),
    ],
)
async def test_options_that_do_not_go_together_are_invalid(five, query, said):
    reply = await five.get(f"{CONFIGS}?{query}")

    assert reply.status == 422
    assert reply.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert said in reply.message


@pytest.mark.parametrize("version", ["abc", "-1", "1.5", "\uff19"])
async def test_a_revision_that_is_not_a_number_is_refused(five, version):
    assert (await five.get(f"{CONFIGS}?resourceVersion={version}")).status == 400


# --- pages ------------------------------------------------------------------------------------------------------------


async def pages(api, url, limit):
    """The names of every page, and the revisions that the pages say."""
    found, versions, token = [], set(), ""
    while True:
        reply = await api.get(f"{url}{'&' if '?' in url else '?'}limit={limit}&continue={token}")
        assert reply.status == 200, reply.raw
        found.append(reply.names)
        versions.add(reply.version)
        token = reply.body["metadata"].get("continue", "")
        if not token:
            return found, versions


async def test_a_limit_makes_pages_with_a_token_and_a_count(five):
    first = await five.get(f"{CONFIGS}?limit=2")
    second = await five.get(f"{CONFIGS}?limit=2&continue={first.body['metadata']['continue']}")
    third = await five.get(f"{CONFIGS}?limit=2&continue={second.body['metadata']['continue']}")

    assert [first.names, second.names, third.names] == [["a", "b"], ["c", "d"], ["e"]]
    assert [item.body["metadata"].get("remainingItemCount") for item in (first, second, third)] == [3, 1, None]
    assert "continue" not in third.body["metadata"]
    assert opened(first.body["metadata"]["continue"]) == {
        "v": "meta.k8s.io/v1",
        "rv": int(first.version),
        "start": "b\0",
    }


async def test_a_page_that_holds_all_has_no_token(five):
    reply = await five.get(f"{CONFIGS}?limit=5")

    assert reply.body["metadata"] == {"resourceVersion": reply.version}


async def test_pages_form_one_list_despite_writes_in_between(five, config):
    first = await five.get(f"{CONFIGS}?limit=2")
    await five.delete(f"{CONFIGS}/d")
    await five.made(CONFIGS, config("bb"))
    await five.patch(f"{CONFIGS}/e", {"data": {"late": "1"}})

    rest = await five.get(f"{CONFIGS}?continue={first.body['metadata']['continue']}")

    assert rest.names == ["c", "d", "e"]
    assert rest.version == first.version
    assert "data" not in rest.body["items"][-1]


async def test_a_page_of_exactly_a_revision_stays_there(five):
    then = five.store.revision
    await five.delete(f"{CONFIGS}/a")

    found, versions = [], set()
    reply = await five.get(f"{CONFIGS}?limit=3&resourceVersion={then}&resourceVersionMatch=Exact")
    found, versions = [*reply.names], {reply.version}
    reply = await five.get(f"{CONFIGS}?limit=3&continue={reply.body['metadata']['continue']}")

    assert [*found, *reply.names] == list("abcde")
    assert versions == {reply.version} == {str(then)}


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_selected_objects_come_in_pages_too(serve, config, limit):
    api = await serve(limits=Limits(scan_keys=2))
    for number in range(9):
        await api.made(CONFIGS, config(f"n{number}", labels={"odd": str(number % 2)}))

    found, versions = await pages(api, f"{CONFIGS}?labelSelector=odd%3D1", limit)

    assert [*chain.from_iterable(found)] == ["n1", "n3", "n5", "n7"]
    assert all(len(item) == limit for item in found[:-1])
    assert len(versions) == 1


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_no_selected_object_is_lost_between_two_pages(five, limit):
    found, _ = await pages(five, f"{CONFIGS}?labelSelector=!none", limit)

    assert [*chain.from_iterable(found)] == list("abcde")


async def test_a_selected_page_is_of_one_revision_however_often_the_store_is_asked(serve, config):
    class ChangingStore(MemoryStore):
        """Changes after every page of configmaps that it returns."""

        async def list(self, prefix, **options):
            page = await super().list(prefix, **options)
            if options.get("limit"):
                await five.delete(f"{CONFIGS}/d")
                await five.post(CONFIGS, config("cc"))
            return page

    five = await serve(ChangingStore(), limits=Limits(scan_keys=2))
    for name in "abcde":
        await five.made(CONFIGS, config(name))
    revision = five.store.revision

    reply = await five.get(f"{CONFIGS}?limit=100&labelSelector=!none")

    assert reply.names == list("abcde")
    assert reply.version == str(revision)


async def test_a_page_with_a_selector_has_no_remaining_item_count(five):
    reply = await five.get(f"{CONFIGS}?limit=1&labelSelector=!none")

    assert reply.body["metadata"]["continue"]
    assert "remainingItemCount" not in reply.body["metadata"]


async def test_pages_go_through_all_namespaces(five, config):
    await five.made("/api/v1/namespaces/kube-public/configmaps", config("a"))

    found, _ = await pages(five, EVERYWHERE, 2)

    assert [*chain.from_iterable(found)] == (await five.get(EVERYWHERE)).names


async def test_a_negative_limit_is_refused(five):
    assert (await five.get(f"{CONFIGS}?limit=-1")).status in (400, 422)


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_an_expired_continue_token_is_answered_with_an_inconsistent_one(five, config):
    first = await five.get(f"{CONFIGS}?limit=2")
    await five.made(CONFIGS, config("cc"))
    await five.store.compact(five.store.revision)

    expired = await five.get(f"{CONFIGS}?limit=2&continue={first.body['metadata']['continue']}")
    assert (expired.status, expired.body["reason"]) == (410, "Expired")
    assert expired.body["code"] == 410

    reply = await five.get(f"{CONFIGS}?limit=2&continue={expired.body['metadata']['continue']}")
    assert reply.names == ["c", "cc"]
    assert reply.version == str(five.store.revision)
    rest = await five.get(f"{CONFIGS}?continue={reply.body['metadata']['continue']}")
    assert rest.names == ["d", "e"]


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("%%%", id="no base64"),
        pytest.param("e30", id="an empty object"),
        pytest.param("bnVsbA", id="null"),
        pytest.param(sealed(v="meta.k8s.io/v2", rv=5, start="a"), id="another version"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv=0, start="a"), id="revision zero"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv=-2, start="a"), id="a negative revision"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv="5", start="a"), id="a revision as text"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start=""), id="no start"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="../secrets/a"), id="out of the resource"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="/a"), id="an absolute start"),
        pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="a/b/c"), id="too deep a start"),
    ],
)
async def test_a_token_that_the_server_did_not_make_is_refused(five, token):
    reply = await five.get(f"{CONFIGS}?continue={token}")

    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert reply.message.startswith("continue key is not valid")


async def test_every_truncation_of_a_token_is_refused_or_shows_only_this_resource(five):
    token = (await five.get(f"{CONFIGS}?limit=2")).body["metadata"]["continue"]

    for length in range(1, len(token)):
        reply = await five.get(f"{CONFIGS}?continue={token[:length]}")
        assert reply.status == 400, token[:length]


async def test_a_token_of_another_resource_shows_none_of_its_objects(five):
    for name in "xyz":
        await five.made(SECRETS, {"metadata": {"name": name}})
    token = (await five.get(f"{SECRETS}?limit=1")).body["metadata"]["continue"]

    reply = await five.get(f"{CONFIGS}?continue={token}")

    assert reply.status == 400 or {item["kind"] for item in reply.body["items"]} <= {"ConfigMap"}


@pytest.mark.parametrize("start", ["kube-system/a\0", "defaulu\0", "default/a\0", "~\0"])
async def test_a_token_of_another_namespace_never_leaves_this_one(five, config, start):
    await five.made("/api/v1/namespaces/kube-system/configmaps", config("secret-plan"))
    token = sealed(v="meta.k8s.io/v1", rv=five.store.revision, start=start)

    reply = await five.get(f"{CONFIGS}?continue={token}")

    assert reply.status == 400 or {item["metadata"]["namespace"] for item in reply.body["items"]} <= {"default"}


async def test_a_token_goes_without_a_revision(five):
    token = (await five.get(f"{CONFIGS}?limit=2")).body["metadata"]["continue"]

    reply = await five.get(f"{CONFIGS}?continue={token}&resourceVersion={five.store.revision}")

    assert reply.status == 400
    assert reply.message == "specifying resource version is not allowed when using continue"
    assert (await five.get(f"{CONFIGS}?continue={token}&resourceVersion=0")).status == 200


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_a_continue_token_with_any_content_is_valid_or_rejected(text):
    for token in (text, sealed(v="meta.k8s.io/v1", rv=5, start=text)):
        try:
            start = lists._decode_token(token).start.removesuffix("\0")
        except ApiError as error:
            assert error.code == 400  # noqa: PT017 - refused is one of two good ends
        else:
            assert start
            assert not {"", ".", ".."} & {*start.split("/")}
