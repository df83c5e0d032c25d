"""The chain of judges: in order, and what was taken is given back."""

import pytest

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.identity.users import User
from podwire.protocols.k8sapi.status import access_denied
from podwire.protocols.storage import Item


class AdmissionPlugin:
    """Notes when it is asked; takes something, or refuses."""

    def __init__(self, name, notes, *, takes=False, refuses=False):
        self.name, self.notes, self.takes, self.refuses = name, notes, takes, refuses

    async def admit(self, operation):
        self.notes.append(f"{self.name} admits")
        if self.takes:
            operation.taken.append(Item(self.name, b"", 1, 1))
        if self.refuses:
            raise access_denied("no")

    async def undo(self, _operation):
        self.notes.append(f"{self.name} undoes")


def operation():
    obj = {"metadata": {"name": "a"}}
    return Operation(verb="CREATE", resource=None, namespace="", obj=obj, old=None, user=User("jane"))


async def test_admission_plugins_are_called_in_order():
    notes = []

    await Admission([AdmissionPlugin("first", notes), AdmissionPlugin("second", notes)]).admit(operation())

    assert notes == ["first admits", "second admits"]


async def test_after_a_refusal_allocations_are_released_in_reverse_order():
    notes = []
    chain = [
        AdmissionPlugin("first", notes, takes=True),
        AdmissionPlugin("second", notes, refuses=True),
        AdmissionPlugin("third", notes),
    ]

    with pytest.raises(Exception, match="no"):
        await Admission(chain).admit(operation())

    assert notes == ["first admits", "second admits", "third undoes", "second undoes", "first undoes"]


async def test_where_nothing_was_taken_nothing_is_given_back():
    notes = []

    with pytest.raises(Exception, match="no"):
        await Admission([AdmissionPlugin("first", notes), AdmissionPlugin("second", notes, refuses=True)]).admit(
            operation()
        )

    assert notes == ["first admits", "second admits"]


def test_an_operation_knows_its_name():
    assert operation().name == "a"
