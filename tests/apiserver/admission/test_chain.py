"""The chain of plugins: in order, and what was reserved is given back."""

import pytest

from podwire.apiserver.admission import Admission, AdmissionPlugin, Operation
from podwire.apiserver.identity.users import User
from podwire.kinds.catalog import builtin_resources
from podwire.kinds.schema import Schemas
from podwire.kinds.schema.definitions import load
from podwire.protocols.k8sapi.status import access_denied


class Recording(AdmissionPlugin):
    """Records its calls; refuses where it is told to."""

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


def operation(resource=None):
    obj = {"metadata": {"name": "a"}}
    return Operation(verb="CREATE", resource=resource, namespace="", obj=obj, old=None, user=User("jane"))


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
    resources = {resource.name: resource for resource in builtin_resources(Schemas(load()))}

    error = operation(resources["deployments"]).forbidden("for a reason")

    assert error.message == 'deployments.apps "a" is forbidden: for a reason'
    assert error.details == {"name": "a", "group": "apps", "kind": "deployments"}
