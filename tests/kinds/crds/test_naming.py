import pytest

from podwire.kinds.crds.definition import established
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.kinds import Kind

NOW = 1_700_000_000.0


def conditions(status):
    return {
        condition["type"]: (condition["status"], condition["reason"], condition["message"])
        for condition in status["conditions"]
    }


def test_a_definition_without_rivals_is_established(cron_tab):
    status = established(cron_tab, NOW, [])
    assert conditions(status) == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }
    assert status["acceptedNames"] == cron_tab["spec"]["names"]
    assert status["storedVersions"] == ["v1"]
    assert {condition["lastTransitionTime"] for condition in status["conditions"]} == {rfc3339(NOW)}


RIVAL = Kind(group="stable.example.com", version="v1", resource="tabs", kind="Tab", singular="tab", short_names=("t",))


@pytest.mark.parametrize(
    ("word", "value", "reason", "message"),
    [
        pytest.param("plural", "tabs", "PluralConflict", '"tabs" is already in use', id="plural"),
        pytest.param("singular", "t", "SingularConflict", '"t" is already in use', id="singular"),
        pytest.param("shortNames", ["x", "tab"], "ShortNamesConflict", '"tab" is already in use', id="short name"),
        pytest.param("kind", "Tab", "KindConflict", '"Tab" is already in use', id="kind"),
        pytest.param("listKind", "TabList", "ListKindConflict", '"TabList" is already in use', id="list kind"),
    ],
)
def test_a_name_that_another_has_is_not_accepted(cron_tab, word, value, reason, message):
    cron_tab["spec"]["names"][word] = value
    status = established(cron_tab, NOW, [RIVAL])
    assert conditions(status)["NamesAccepted"] == ("False", reason, message)
    assert conditions(status)["Established"] == ("False", "NotAccepted", "not all names are accepted")
    assert status["acceptedNames"].get(word, "") != value


def test_names_in_other_groups_do_not_conflict(cron_tab):
    other = Kind(group="other.example.com", version="v1", resource="crontabs", kind="CronTab", singular="crontab")
    assert conditions(established(cron_tab, NOW, [other]))["NamesAccepted"][0] == "True"


def test_an_established_definition_keeps_its_accepted_names(cron_tab):
    cron_tab["status"] = established(cron_tab, NOW, [])
    cron_tab["spec"]["names"]["shortNames"] = ["t"]
    status = established(cron_tab, NOW + 60, [RIVAL])
    assert conditions(status)["NamesAccepted"][0] == "False"
    assert conditions(status)["Established"][0] == "True"
    assert status["acceptedNames"]["shortNames"] == ["ct"]


def test_nothing_changes_when_nothing_changed(cron_tab):
    cron_tab["status"] = established(cron_tab, NOW, [])
    assert established(cron_tab, NOW + 60, []) == cron_tab["status"]


def test_a_new_storage_version_is_added_to_those_stored(cron_tab):
    cron_tab["status"] = {"storedVersions": ["v1alpha1"]}
    assert established(cron_tab, NOW, [])["storedVersions"] == ["v1alpha1", "v1"]
