import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.server.log_lines import LogOptions, Renderer, ends_line, options_of
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError

NOW = 1_800_000_000.0
LOG = (
    b"2026-11-15T10:00:00.000000001Z stdout F first\n"
    b"2026-11-15T10:00:01Z stderr F oops\n"
    b"2026-11-15T10:00:02.5Z stdout P one \n"
    b"2026-11-15T10:00:02.5Z stdout P:x line\n"
    b"2026-11-15T10:00:02.6Z stdout F  of four\n"
    b"2026-11-15T12:00:03+02:00 stdout F \n"
    b"no record at all\n"
    b"2026-11-15T10:00:04Z stdout F last\n"
)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        pytest.param({}, b"first\noops\none line of four\n\nlast\n", id="all"),
        pytest.param({"stream": b"stderr"}, b"oops\n", id="one stream"),
        pytest.param({"limit": 8}, b"first\noo", id="so many bytes"),
        pytest.param(
            {"timestamps": True, "since": 1_794_736_802.0},
            b"2026-11-15T10:00:02.5Z one line of four\n2026-11-15T12:00:03+02:00 \n2026-11-15T10:00:04Z last\n",
            id="with times, once a line, from a moment on in whatever zone",
        ),
        pytest.param({"since": 1_794_736_804.5}, b"", id="nothing that young"),
    ],
)
def test_the_options_filter_the_lines(options, shown):
    assert Renderer(LogOptions(**options)).feed(LOG) == shown


@given(st.lists(st.integers(0, len(LOG)), max_size=8), st.sampled_from([None, 3, 17, 1000]))
def test_it_does_not_matter_in_which_pieces_a_log_is_read(cuts, limit):
    options = LogOptions(timestamps=True, limit=limit)
    places = [0, *sorted(cuts), len(LOG)]
    renderer = Renderer(options)
    pieces = [renderer.feed(LOG[start:end]) for start, end in itertools.pairwise(places)]
    assert b"".join(pieces) == Renderer(options).feed(LOG)
    assert renderer.full == (limit is not None and limit < 100)


@pytest.mark.parametrize(
    ("record", "ends"),
    [
        (b"2026-11-15T10:00:00Z stdout F text P x\n", True),
        (b"2026-11-15T10:00:00Z stdout P text\n", False),
        (b"2026-11-15T10:00:00Z stdout P:more text\n", False),
        (b"2026-11-15T10:00:00Z stdout F\n", True),
        (b"nonsense\n", True),
    ],
)
def test_a_record_ends_a_line_or_does_not(record, ends):
    assert ends_line(record) is ends


def test_all_options_of_a_query():
    words = {"follow": "true", "previous": "1", "timestamps": "", "tailLines": "5", "limitBytes": "7"}
    query = {name: [value] for name, value in {**words, "sinceSeconds": "60", "stream": "All"}.items()}
    assert options_of(Request(method="GET", path="/", query=query), NOW) == LogOptions(
        follow=True, previous=True, timestamps=True, tail=5, limit=7, since=NOW - 60
    )


def test_since_a_time_and_one_stream():
    query = {"sinceTime": ["2026-11-15T10:00:00+01:00"], "stream": ["Stderr"], "follow": ["false"]}
    options = options_of(Request(method="GET", path="/", query=query), NOW)
    assert options == LogOptions(since=1_794_733_200.0, stream=b"stderr")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"tailLines": "-1"}, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ({"tailLines": "many"}, 'tailLines: Invalid value: "many": must be a number'),
        ({"limitBytes": "0"}, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "0"}, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ({"sinceTime": "yesterday"}, "sinceTime: Invalid value"),
        ({"sinceTime": "2026-11-15T10:00:00Z", "sinceSeconds": "1"}, "at most one of"),
        ({"stream": "stdin"}, "supported values"),
        ({"stream": "Stdout", "tailLines": "1"}, "mutually exclusive"),
        ({"follow": "perhaps"}, "follow: Invalid value"),
    ],
    ids=str,
)
def test_an_invalid_option_is_rejected_by_name(query, why):
    with pytest.raises(ApiError) as raised:
        options_of(Request(method="GET", path="/", query={name: [value] for name, value in query.items()}), NOW)
    assert raised.value.code == 400
    assert why in raised.value.message
