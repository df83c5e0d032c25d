"""A valid pod and a way to spoil it: rows of the tables here name a change and what the server says to it."""

import copy
import re
from typing import Any

import pytest

POD = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            {
                "name": "main",
                "image": "nginx:1.27",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {},
            }
        ],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "securityContext": {},
    },
}
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def spoil(obj: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with the values at some paths replaced; `...` removes one, an index past the end appends."""
    spoiled = copy.deepcopy(obj)
    for path, value in changes.items():
        *way, last = (int(index) if index else name for index, name in _STEP.findall(path))
        place: Any = spoiled
        for step in way:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if value is ...:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(copy.deepcopy(value))
        else:
            place[last] = copy.deepcopy(value)
    return spoiled


@pytest.fixture
def pod():
    return copy.deepcopy(POD)


@pytest.fixture
def spoiled():
    """A function: the valid pod with some changes."""
    return lambda changes: spoil(POD, changes)


@pytest.fixture
def edit():
    """A function: any object with some changes."""
    return spoil


@pytest.fixture
def errors_of(spoiled):
    """A function: what creating the spoiled pod answers."""
    from podwire.kinds.builtin.core.pod import validate

    return lambda changes: [str(error) for error in validate.create(spoiled(changes))]
