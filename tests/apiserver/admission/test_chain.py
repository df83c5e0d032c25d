"""The chain of plugins: in order, and what was reserved is given back."""

import pytest

from podwire.apiserver.admission import Admission, AdmissionPlugin, Operation
from podwire.apiserver.identity.users import User
from podwire.kinds.catalog import builtin_resources
from podwire.kinds.schema import Schemas
from podwire.kinds.schema.definitions import load
from podwire.protocols.k8sapi.status import access_denied

RESOURCES = {resource.name: resource for resource in builtin_resources(Schemas(load()))}


class Recording(AdmissionPlugin):
    """Records its calls; refuses on demand."""

    def __init__(self, name, notes, *, refuses=False):
        self.name, self.notes, self.refuses = name, notes, refuses

    async def admit(self, operation):
        self.notes.append(f"{self.name} admits")
        if self.refuses:
            raise access_denied("no")


class Validating(AdmissionPlugin):
    def __init__(self, notes):
        self.notes = notes

    async def validate(self, operation):
        self.notes.append("validates")


class OfPods(Validating):
    verbs = frozenset({"CREATE", "UPDATE"})
    resources = frozenset({("", "pods")})


def operation(resource="configmaps", verb="CREATE"):
    obj = {"metadata": {"name": "a"}}
    return Operation(verb=verb, resource=RESOURCES[resource], namespace="", obj=obj, old=None, user=User("jane"))


async def test_admission_plugins_are_called_in_order():
    notes = []

    await Admission([Recording("first", notes), Validating(notes), Recording("second", notes)]).admit(operation())

    assert notes == ["first admits", "second admits"]


async def test_a_refusal_ends_the_chain():
    notes = []
    chain = [Recording("first", notes, refuses=True), Recording("second", notes)]

    with pytest.raises(Exception, match="no"):
        await Admission(chain).admit(operation())

    assert notes == ["first admits"]


async def test_validation_calls_only_plugins_that_validate():
    notes = []

    await Admission([Recording("first", notes), Validating(notes)]).validate(operation())

    assert notes == ["validates"]


@pytest.mark.parametrize(
    ("resource", "verb", "called"),
    [
        ("pods", "CREATE", True),
        ("pods", "UPDATE", True),
        ("pods", "DELETE", False),
        ("pods", "CONNECT", False),
        ("configmaps", "CREATE", False),
        ("deployments", "CREATE", False),
    ],
)
async def test_a_plugin_is_called_for_its_verbs_on_its_resources_only(resource, verb, called):
    notes = []
    chain = Admission([OfPods(notes)])

    for _ in range(2):  # the second time it is remembered
        await chain.validate(operation(resource, verb))

    assert notes == ["validates"] * 2 * called


async def test_reservations_are_undone_in_reverse_order_and_once():
    notes = []
    current = operation()

    def reservation(name):
        async def undo():
            notes.append(f"{name} undone")

        async def reserve():
            notes.append(f"{name} reserved")
            current.undos.append(undo)

        return reserve

    current.reservations += [reservation("address"), reservation("quota")]

    await current.reserve()
    await current.undo()
    await current.undo()

    assert notes == ["address reserved", "quota reserved", "quota undone", "address undone"]


def test_an_operation_knows_its_name():
    assert operation().name == "a"


def test_a_refusal_names_resource_and_object():
    error = operation("deployments").forbidden("for a reason")

    assert error.message == 'deployments.apps "a" is forbidden: for a reason'
    assert error.details == {"name": "a", "group": "apps", "kind": "deployments"}
