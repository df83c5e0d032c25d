"""The scheduler at work on a real API server."""


async def test_a_pod_is_bound_to_the_only_node(working):
    await working.node("n1")
    await working.pod("web")
    pod = await working.placed("web")
    assert pod["spec"]["nodeName"] == "n1"
    assert [(each["type"], each["status"]) for each in pod["status"]["conditions"]] == [("PodScheduled", "True")]
