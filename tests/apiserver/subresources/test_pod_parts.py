"""ephemeralcontainers and resize: doors through which one part of a pod can change while it runs."""

import pytest

PODS = "/api/v1/namespaces/default/pods"
EPHEMERAL = f"{PODS}/web/ephemeralcontainers"
RESIZE = f"{PODS}/web/resize"
DEBUGGER = {"name": "debug", "image": "busybox", "stdin": True}


def sized(cpu="1", memory="64Mi", limit="2", name="c"):
    requests, limits = {"cpu": cpu, "memory": memory}, {"cpu": limit, "memory": "128Mi"}
    return {"containers": [{"name": name, "resources": {"requests": requests, "limits": limits}}]}


@pytest.fixture
async def web(api, pod):
    """A server with a pod that has requests and limits."""
    resources = sized()["containers"][0]["resources"]
    await api.made(PODS, pod(node="n1", containers=[{"name": "c", "image": "nginx:1.27", "resources": resources}]))
    return api


# --- ephemeral containers ---------------------------------------------------------------------------------------------


async def test_a_debugger_joins_a_running_pod(web):
    reply = await web.patch(EPHEMERAL, {"spec": {"ephemeralContainers": [DEBUGGER]}}, "strategic")

    assert reply.status == 200
    (container,) = reply.body["spec"]["ephemeralContainers"]
    assert container["name"] == "debug"
    assert container["imagePullPolicy"] == "Always"
    assert reply.body["metadata"]["generation"] == 2


async def test_ephemeralcontainers_changes_nothing_more(web):
    before = (await web.get(f"{PODS}/web")).body
    patch = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"ephemeralContainers": [DEBUGGER], "activeDeadlineSeconds": 5},
        "status": {"phase": "Failed"},
    }

    reply = await web.patch(EPHEMERAL, patch)

    assert reply.status == 200
    assert not {"labels", "annotations"} & {*reply.body["metadata"]}
    assert "activeDeadlineSeconds" not in reply.body["spec"]
    assert reply.body["status"] == before["status"]


async def test_a_debugger_stays(web):
    await web.patch(EPHEMERAL, {"spec": {"ephemeralContainers": [DEBUGGER]}})

    removed = await web.patch(EPHEMERAL, {"spec": {"ephemeralContainers": []}})
    changed = await web.patch(EPHEMERAL, {"spec": {"ephemeralContainers": [{**DEBUGGER, "image": "other"}]}})

    assert (removed.status, changed.status) == (422, 422)


async def test_ephemeral_containers_cannot_be_added_by_a_plain_update(web):
    assert (await web.patch(f"{PODS}/web", {"spec": {"ephemeralContainers": [DEBUGGER]}})).status == 422


async def test_an_update_needs_the_version_that_is_there(web):
    pod = (await web.get(EPHEMERAL)).body
    await web.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})

    reply = await web.put(EPHEMERAL, {**pod, "spec": {**pod["spec"], "ephemeralContainers": [DEBUGGER]}})

    assert reply.status == 409


# --- resize -----------------------------------------------------------------------------------------------------------


async def test_cpu_and_memory_change_in_place(web):
    reply = await web.patch(RESIZE, {"spec": sized(cpu="1500m")}, "strategic")

    assert reply.status == 200
    assert reply.body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "64Mi"}
    assert reply.body["spec"]["containers"][0]["image"] == "nginx:1.27"
    assert reply.body["metadata"]["generation"] == 2


async def test_resize_changes_only_resources(web):
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}

    reply = await web.patch(RESIZE, patch, "strategic")

    assert reply.status == 200
    assert reply.body["spec"]["containers"][0]["image"] == "nginx:1.27"
    assert "labels" not in reply.body["metadata"]


async def test_resources_cannot_be_changed_by_a_plain_update(web):
    assert (await web.patch(f"{PODS}/web", {"spec": sized(cpu="1500m")}, "strategic")).status == 422


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        pytest.param("strategic", sized(cpu="3"), "must be less than or equal to cpu limit", id="more than the limit"),
        pytest.param("strategic", sized(cpu="-1"), "must be greater than or equal to 0", id="less than nothing"),
        pytest.param(
            "strategic", sized(cpu="2", memory="128Mi"), "Pod QOS Class may not change", id="another quality of service"
        ),
        pytest.param(
            "merge",
            {"containers": [{"name": "c", "image": "nginx:1.27",
                             "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "64Mi"}}}]},
            "resource limits cannot be removed",
            id="a limit less",
        ),
        pytest.param("strategic", sized(name="d"), "may not be added or removed on resize", id="another container"),
        pytest.param(
            "strategic",
            {"containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "1"},
                                                       "requests": {"example.com/gpu": "1"}}}]},
            "only cpu and memory resources are mutable",
            id="another resource",
        ),
        pytest.param(
            "strategic",
            {"containers": [{"name": "c",
                             "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]},
            "only cpu and memory resources are mutable",
            id="another policy",
        ),
    ],
)  # fmt: skip
async def test_a_resize_that_cannot_be_is_refused(web, kind, spec, said):
    before = (await web.get(f"{PODS}/web")).body

    reply = await web.patch(RESIZE, {"spec": spec}, kind)

    assert reply.status == 422
    assert said in reply.message
    assert (await web.get(f"{PODS}/web")).body == before


async def test_a_static_pods_mirror_is_not_resized(api, pod):
    given = pod(node="n1")
    given["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    await api.made(PODS, given)

    reply = await api.patch(RESIZE, {"spec": sized()}, "strategic")

    assert reply.status == 422
    assert "static pods cannot be resized" in reply.message


@pytest.mark.parametrize("door", [EPHEMERAL, RESIZE])
async def test_a_dry_run_changes_nothing(web, door):
    revision = web.store.revision
    spec = sized(cpu="1500m") if door == RESIZE else {"ephemeralContainers": [DEBUGGER]}

    assert (await web.patch(f"{door}?dryRun=All", {"spec": spec}, "strategic")).status == 200

    assert web.store.revision == revision
