"""Form of an answer by the client's Accept header."""

import pytest

from podwire.apiserver.request.negotiation import Form, Shown, form
from podwire.protocols.k8sapi.status import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
OLD_TABLE = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param("", Form(), id="nothing said"),
        pytest.param("*/*", Form(), id="anything"),
        pytest.param("application/*", Form(), id="any application"),
        pytest.param("application/json", Form(), id="JSON"),
        pytest.param("application/json; charset=utf-8", Form(), id="JSON with a charset"),
        pytest.param(f"{PROTOBUF},application/json", Form(), id="protobuf first, which there is not"),
        pytest.param(f"{TABLE},{OLD_TABLE},application/json", Form(Shown.TABLE, "v1"), id="kubectl get"),
        pytest.param(f"{OLD_TABLE},application/json", Form(Shown.TABLE, "v1beta1"), id="an old kubectl"),
        pytest.param(f"{PARTIAL},application/json", Form(Shown.METADATA, "v1"), id="metadata"),
        pytest.param(PARTIAL_LIST, Form(Shown.METADATA, "v1"), id="metadata of a list"),
        pytest.param(
            f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,{PARTIAL}", Form(Shown.METADATA), id="gc"
        ),
        pytest.param(f"application/json;q=0.5,{TABLE}", Form(Shown.TABLE), id="the dearest first"),
        pytest.param(
            "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form(), id="a table of the future"
        ),
        pytest.param("application/json;as=Chart;v=v1;g=meta.k8s.io,*/*", Form(), id="an unknown form"),
        pytest.param("text/html,application/json;q=0.9", Form(), id="a browser"),
    ],
)
def test_the_first_form_that_there_is_counts(accept, expected):
    assert form(accept) == expected


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table;v=v9;g=meta.k8s.io"])
def test_an_unsupported_form_is_not_acceptable(accept):
    with pytest.raises(ApiError) as refused:
        form(accept)

    assert refused.value.code == 406


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
def test_a_review_has_no_other_form_than_its_own(accept):
    with pytest.raises(ApiError):
        form(accept, stored=False)
    assert form(f"{accept},application/json", stored=False) == Form()
