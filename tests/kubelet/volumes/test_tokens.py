"""Tokens are replaced before they end."""

import asyncio

import pytest

from podwire.kubelet.volumes import VolumesNotReady
from podwire.kubelet.volumes.tokens import RETRY_SECONDS
from podwire.protocols.k8sapi.client_side import Unreachable
from podwire.protocols.k8sapi.status import ApiError, Reason

SECONDS = 1000


def projected(name="v", **token):
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": SECONDS, **token}}
    return {"name": name, "projected": {"sources": [source]}}


async def prepared(node, name="web", **token):
    pod = await node.pod(name, volumes=[projected(**token)])
    await node.volumes.prepare(pod)
    return pod, node.volume(pod, "v", "projected") / "token"


async def replaced(node, pod, file, before):
    """Until another token was asked for. Another pod makes the kubelet look at its clock, which was set ahead."""
    node.api.asked.clear()
    await node.volumes.prepare(await node.pod("bystander"))
    async with asyncio.timeout(30):
        await node.api.asked.wait()
    await node.volumes.prepare(pod)  # waits until the one who asked is done with this pod
    assert file.read_text() != before


async def test_a_token_is_replaced_after_four_fifths_of_its_life_and_not_before(node):
    pod, file = await prepared(node)
    before = file.read_text()
    node.clock.ahead = SECONDS * 0.79
    await node.volumes.refresh(pod)
    assert (file.read_text(), node.api.tokens) == (before, 1)
    node.clock.ahead = SECONDS * 0.81
    await replaced(node, pod, file, before)
    assert node.api.tokens == 2


async def test_two_files_for_the_same_audience_hold_one_token(node):
    pod = await node.pod(volumes=[projected("a"), projected("b"), projected("c", audience="other")])
    await node.volumes.prepare(pod)
    a, b, c = ((node.volume(pod, letter, "projected") / "token").read_text() for letter in "abc")
    assert a == b != c
    assert node.api.tokens == 2


@pytest.mark.parametrize(
    "trouble", [Unreachable("no route"), ApiError(Reason.FORBIDDEN, "not you")], ids=["unreachable", "forbidden"]
)
async def test_a_token_stays_while_no_new_one_is_to_be_had_and_it_has_not_ended(node, trouble):
    pod, file = await prepared(node)
    before = file.read_text()
    node.api.refusing = trouble
    node.clock.ahead = SECONDS * 0.9
    await node.volumes.refresh(pod)
    asked = node.api.tokens
    await node.volumes.refresh(pod)
    assert (file.read_text(), node.api.tokens) == (before, asked), "asked again at once"
    node.clock.ahead = SECONDS + RETRY_SECONDS
    with pytest.raises(VolumesNotReady, match="failed to fetch token: "):
        await node.volumes.refresh(pod)
    node.api.refusing = None
    node.clock.ahead += RETRY_SECONDS
    await replaced(node, pod, file, before)


async def test_a_missing_service_account_is_reported(node):
    node.api.refusing = ApiError(Reason.NOT_FOUND, 'serviceaccounts "default" not found')
    pod = await node.pod(volumes=[projected()])
    with pytest.raises(VolumesNotReady, match='failed to fetch token: serviceaccounts "default" not found'):
        await node.volumes.prepare(pod)


async def test_tokens_of_a_removed_pod_are_not_requested(node):
    pod, _ = await prepared(node)
    await node.volumes.remove(pod.uid)
    node.clock.ahead = SECONDS * 5
    other, file = await prepared(node, "other")
    before = file.read_text()
    node.clock.ahead += SECONDS
    await replaced(node, other, file, before)
    assert node.api.tokens == 3
    assert node.volumes.uids() == {other.uid}


async def test_the_token_of_a_pod_that_never_came_to_be_is_forgotten(node):
    missing = {"name": "m", "configMap": {"name": "settings"}}
    pod = await node.pod(volumes=[projected(), missing])
    with pytest.raises(VolumesNotReady, match='configmap "settings" not found'):
        await node.volumes.prepare(pod)
    node.clock.ahead = SECONDS
    _, file = await prepared(node, "other")
    assert file.exists()
    await node.make("ConfigMap", "settings", data={})
    assert await node.changed() == {pod.uid}
    await node.volumes.prepare(pod)
    assert (node.volume(pod, "v", "projected") / "token").exists()


async def test_a_wall_clock_that_jumps_changes_nothing(node, monkeypatch):
    pod, file = await prepared(node)
    before = file.read_text()
    monkeypatch.setattr(type(node.clock), "wall", lambda _: 86400.0)
    await node.volumes.refresh(pod)
    assert (file.read_text(), node.api.tokens) == (before, 1)
