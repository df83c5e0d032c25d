"""A plan of routes applied in a pod's namespace: read, compare, send the difference to the kernel in one batch."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net.network import KernelNetwork, Parts
from podwire.nriplugins.network.resources import Problem, Why
from podwire.nriplugins.network.routes.plan import NOTHING, Changes, KernelState, Plan, PlannedRoute, PlannedRule, diff


class Outcome(NamedTuple):
    changed: int
    """The number of routes and rules sent to the kernel."""
    problems: tuple[Problem, ...]
    """All of the plan's, and what came up."""


def read(network: KernelNetwork) -> KernelState:
    links = {link.name: link.ifindex for link in network.links.list()}
    routes = (*network.routes.list(4, None), *network.routes.list(6, None))
    return KernelState(links, routes, (*network.rules.list(4), *network.rules.list(6)))


def apply(network: KernelNetwork, plan: Plan) -> Outcome:
    """Set what is missing, change what differs, take away what is ours and in no plan.

    What the kernel refuses is a trouble of its resources and of no others.
    """
    changes = diff(plan, read(network))
    refused: list[Problem] = []
    if len(changes):
        try:
            with network.batch() as batch:
                _send(batch, changes)
        except errors.LinuxError:
            refused = _one_by_one(network, diff(plan, read(network)))
    return Outcome(len(changes), (*plan.problems, *changes.problems, *refused))


def remove(network: KernelNetwork) -> int:
    """Take away all that is ours; how much that was."""
    return apply(network, NOTHING).changed


def _send(parts: Parts, changes: Changes) -> None:
    for rule in changes.drop_rules:
        parts.rules.delete(rule)
    for route in changes.drop_routes:
        parts.routes.delete(route)
    for planned in changes.replace:
        parts.routes.replace(planned.route)
    for planned in changes.add:
        parts.routes.add(planned.route)
    for wanted in changes.add_rules:
        parts.rules.add(wanted.rule)


def _one_by_one(network: KernelNetwork, changes: Changes) -> list[Problem]:
    """After a batch in which something was refused: what is still to be done, so that each refusal has its owner."""
    for rule in changes.drop_rules:
        with suppress(errors.Missing):
            network.rules.delete(rule)
    for route in changes.drop_routes:
        with suppress(errors.Missing):
            network.routes.delete(route)
    problems: list[Problem] = []
    for planned in changes.replace:
        problems += _tried(partial(network.routes.replace, planned.route), planned)
    for planned in changes.add:
        problems += _tried(partial(network.routes.add, planned.route), planned)
    for wanted in changes.add_rules:
        problems += _tried(partial(network.rules.add, wanted.rule), wanted)
    return problems


def _tried(act: Callable[[], None], wanted: PlannedRoute | PlannedRule) -> list[Problem]:
    try:
        act()
    except errors.LinuxError as error:
        return [Problem(owner, Why.FAILED, wanted.field, str(error)) for owner in wanted.owners]
    return []
