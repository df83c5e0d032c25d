"""The choice of controllers."""

import pytest

from podwire.controllers.registry import ALL, REGISTRATIONS, UnknownController, choose

DUTIES = {"crd-cleanup-controller", "event-expiry-controller"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", ALL),
        ("", ALL),
        ("none", DUTIES),
        ("namespace-controller", {"namespace-controller", *DUTIES}),
        (
            "namespace-controller, resourcequota-controller",
            {"namespace-controller", "resourcequota-controller", *DUTIES},
        ),
        ("namespace-controller,-event-expiry-controller", {"namespace-controller", "crd-cleanup-controller"}),
        ("*,-namespace-controller", ALL - {"namespace-controller"}),
        ("-namespace-controller", ALL - {"namespace-controller"}),
    ],
)
def test_controllers_are_chosen_by_name(text, expected):
    assert choose(text) == expected


@pytest.mark.parametrize("text", ["nothing", "none,namespace-controller", "-x"])
def test_an_unknown_name_is_refused(text):
    with pytest.raises(UnknownController, match=r"is not in the list of known controllers: .*namespace-controller"):
        choose(text)


def test_names_are_unique():
    assert len(ALL) == len(REGISTRATIONS)
