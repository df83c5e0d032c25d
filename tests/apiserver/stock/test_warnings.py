"""Warnings of kube-apiserver 1.36.4 about objects that are valid and probably not what is meant, and ours beside them.

`warnings.json` has them as recorded facts: a request to create an object, as a dry run, and the warnings of its answer.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from podwire.apiserver.request.response import WARNINGS_LENGTH

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("warnings.json").read_text(encoding="utf-8"))
OURS = "no controller acts on "
"""Begins warnings that only we give: the server of these tests runs without controllers."""
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
OLD_LABEL = "spec.template.spec.nodeSelector[beta.kubernetes.io/os]"


def texts(reply) -> list[str]:
    warnings = [text.removeprefix('299 - "').removesuffix('"').replace('\\"', '"') for text in reply.warnings]
    return [warning for warning in warnings if not warning.startswith(OURS)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['body']['kind']} {row['body']['metadata']['name']}")
async def test_warnings_are_those_of_the_stock_server(api, row):
    reply = await api.post(f"{row['path']}?dryRun=All", row["body"])
    assert reply.status == 201, reply.raw
    assert sorted(texts(reply)) == sorted(row["warnings"])


def test_the_recorded_answers_reach_the_limit():
    """Else the truncation of warnings is not compared."""
    lengths = [sum(map(len, row["warnings"])) for row in ROWS]
    assert max(lengths) >= WARNINGS_LENGTH


async def test_an_update_repeats_the_warnings_about_its_template_only_when_it_changes_the_spec(api, deployment):
    body = deployment()
    body["spec"]["template"]["spec"]["nodeSelector"] = {"beta.kubernetes.io/os": "linux"}
    made = await api.post(DEPLOYMENTS, body)
    assert [text.partition(":")[0] for text in texts(made)] == [OLD_LABEL]
    url = f"{DEPLOYMENTS}/{made.body['metadata']['name']}"
    labelled = await api.patch(url, {"metadata": {"labels": {"a": "b"}}})
    assert (labelled.status, texts(labelled)) == (200, [])
    scaled = await api.patch(url, {"spec": {"replicas": 0}})
    assert [text.partition(":")[0] for text in texts(scaled)] == [OLD_LABEL]
    assert texts(await api.patch(f"{url}/status", {"status": {"replicas": 1}})) == []


async def test_updates_of_pods_have_no_warnings(api, pod):
    body = pod("a")
    body["spec"]["nodeSelector"] = {"beta.kubernetes.io/os": "linux"}
    assert len(texts(await api.post(PODS, body))) == 1
    assert texts(await api.patch(f"{PODS}/a", {"metadata": {"labels": {"a": "b"}}})) == []


async def test_every_answer_about_a_deprecated_kind_says_so(api):
    endpoints = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    url = "/api/v1/namespaces/default/endpoints"
    assert texts(await api.get(url)) == [endpoints]
    assert texts(await api.get(f"{url}/none")) == [endpoints]
    assert texts(await api.get("/api/v1/componentstatuses")) == ["v1 ComponentStatus is deprecated in v1.19+"]
