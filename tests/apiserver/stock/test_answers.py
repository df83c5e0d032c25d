"""Answers of kube-apiserver 1.36.4 to 318 good and bad requests, recorded as facts, and ours beside them.

`answers.json` has the requests in their order; later ones refer to objects of the first. An answer is its code, its
reason, its message, and the fields of its causes. Where ours differs, the row says why, and how the code and the reason
differ; everything else is equal. A value such as a uid is replaced by a word.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from podwire.protocols.k8sapi.server_side import Certificate, Response, Stream
from tests.apiserver.support import ADMIN, JSON, WIDGETS, Api, answer_when

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
RAW = "RAW:"
"""Begins a body that is sent as it is."""
DEFINITION = "create definition"
PLAIN = "Bearer plain-token"
"""The token of a user without rights, who is known by a certificate here."""
_CHANGING = (
    (re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"current: \d+"), "current: N"),
    (re.compile(r"record \(\d+\)"), "record (N)"),
    (re.compile("UP-[a-z0-9]{5}"), "UP-xxxxx"),
)


async def answer_of(api: Api, row: dict[str, Any]) -> dict[str, Any]:
    body = row.get("body")
    if isinstance(body, str) and body.startswith(RAW):
        body = body.removeprefix(RAW).encode()
    headers = dict(row.get("headers") or {})
    user: Certificate | None = ADMIN
    if "authorization" in headers:
        user = Certificate("plain") if headers["authorization"] == PLAIN else None
        if user is not None:
            del headers["authorization"]
    accept = headers.pop("accept", JSON)
    content_type = row.get("type", JSON)
    answer = await api.ask(
        row["method"], row["path"], body, accept=accept, content_type=content_type, headers=headers, user=user
    )
    if isinstance(answer, Stream) and not answer.whole:
        return {"code": answer.status}
    assert isinstance(answer, Response), answer
    return shown(answer)


def shown(answer: Response) -> dict[str, Any]:
    result: dict[str, Any] = {"code": answer.status}
    if not answer.content_type.startswith(JSON):
        return {**result, "message": answer.body.decode()}
    status = json.loads(answer.body)
    if status["kind"] != "Status":
        return result
    message = status.get("message", "")
    for pattern, word in _CHANGING:
        message = pattern.sub(word, message)
    causes = (status.get("details") or {}).get("causes", ())
    fields = sorted({f"{cause['field']}: {cause['reason']}" for cause in causes if "field" in cause})
    found = {"reason": status.get("reason"), "message": message, "fields": fields}
    return {**result, **{key: value for key, value in found.items() if value}}


async def test_answers_are_those_of_the_stock_server(impatient):
    wrong = []
    for row in ROWS:
        ours, stock, differs = await answer_of(impatient, row), row["stock"], row.get("differs")
        if row["id"] == DEFINITION:
            await answer_when(lambda: impatient.get(WIDGETS), lambda reply: reply.status == 200)
        if differs is None:
            right = ours == stock
        else:
            expected = {key: differs.get(key, stock.get(key)) for key in ("code", "reason")}
            right = ours != stock and {key: ours.get(key) for key in expected} == expected
        if not right:
            wrong.append((row["id"], stock, ours, differs))
    assert not wrong


@pytest.mark.parametrize("row", [row for row in ROWS if "differs" in row], ids=lambda row: row["id"])
def test_a_difference_has_a_reason(row):
    assert len(row["differs"]["why"].split()) >= 2 or row["differs"]["why"] == "refused"
