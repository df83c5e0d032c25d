"""sbr: source-based routing. Packets from an address of the pod leave by the interface that has the address.

Each address gets a routing table of its own with the routes of its interface, and a rule that leads to it. The routes
of the interface leave the main table. The record has all of it before anything is changed; DEL removes rules and
tables, and puts the routes back.
"""

import os
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from zlib import crc32

from podwire.cniplugins.attachments import Record, data_directory
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.pod_link import pod_path
from podwire.cniplugins.route_records import decode_route, encode_routes
from podwire.cniplugins.sbr.settings import Plan, Present, addresses_of, make_plan, parse_settings
from podwire.cniplugins.skeleton import Call, pod_namespace, run_all
from podwire.durable.locks import LockHeld, lock_byte
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.fs.trust import check_once
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Route, Rule
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object

RULED = declare("cni.sbr-ruled", "the rules exist, and lead to tables without routes")
FILLED = declare("cni.sbr-filled", "the tables have the routes, and the main table has them, too")
_FAMILIES = (4, 6)


class Sbr(OrderedPlugin):
    name = "sbr"
    points = declare_steps(name)
    chained = True
    previous_missing = ("This plugin must be called as chained plugin", "This plugin must be called as chained plugin")

    def add(self, call: Call) -> Result:
        """One at a time in a pod: two would choose the same tables."""
        data = data_directory(call.config)
        check_once(data)
        self._previous(call)
        key = crc32(f"sbr {pod_namespace(call)}".encode())
        os.makedirs(data, mode=0o700, exist_ok=True)
        try:
            lock = lock_byte(f"{data}/.lock", key, wait=call.limits.lock)
        except LockHeld as error:
            raise CniError(Code.TRY_AGAIN_LATER, "another call of sbr for the same pod takes too long") from error
        with lock:
            return super().add(call)

    def validate(self, call: Call) -> bool:
        parse_settings(call.config)
        previous = call.config.previous()
        if previous is not None and not addresses_of(previous, call.invocation.ifname):
            message = f"No IP addresses supplied on interface: {call.invocation.ifname}"
            raise CniError(Code.BAD_CONFIG, message, f"prevResult: {call.invocation.ifname} has no address")
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        pod = ends.pod
        link = pod.links.get(record.ifname)
        rules = [rule for family in _FAMILIES for rule in pod.rules.list(family)]
        routes = [route for family in _FAMILIES for route in pod.routes.list(family, None)]
        ips = addresses_of(previous, record.ifname)
        plan = make_plan(parse_settings(call.config), ips, Present(link.ifindex, rules, routes))
        return record._replace(before={"ifindex": link.ifindex, **_encode(plan)})

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        plan = _decode(record.before)
        for rule in plan.rules:
            with suppress(linux.RuleExists):
                ends.pod.rules.add(rule)
        failpoint(RULED)
        for route in plan.added:
            ends.pod.routes.replace(route)
        failpoint(FILLED)
        for route in plan.hints:
            ends.pod.routes.replace(route)
        hinted = {route.destination for route in plan.hints}
        for route in plan.removed:
            if route.destination not in hinted:
                with suppress(linux.NoSuchRoute):
                    ends.pod.routes.delete(route)
        return given

    def detach(self, call: Call, record: Record) -> None:
        """Without a record it removes the rules for the addresses of the result, as the reference plugin does."""
        path = pod_path(call, record)
        if path is None:
            return
        with KernelNetwork(path) as pod:
            if record.is_lost:
                _remove_rules(pod, record, call)
                return
            plan = _decode(record.before)
            run_all(
                *(partial(_delete_rule, pod, rule) for rule in plan.rules),
                *(partial(_delete_route, pod, route) for route in plan.added),
                *(partial(_restore, pod, route, record) for route in plan.removed),
            )

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        plan = _decode(record.before)
        rules = {(rule.source, rule.table) for family in _FAMILIES for rule in ends.pod.rules.list(family)}
        for rule in plan.rules:
            message = f"the rule for packets from {rule.source} to table {rule.table} does not exist"
            expect((rule.source, rule.table) in rules, message)
        routes = {
            (route.destination, route.gateway, route.table)
            for family in _FAMILIES
            for route in ends.pod.routes.list(family, None)
        }
        for route in plan.added:
            message = f"the route to {route.destination} in table {route.table} does not exist"
            expect((route.destination, route.gateway, route.table) in routes, message)


def _delete_rule(pod: KernelNetwork, rule: Rule) -> None:
    with suppress(linux.NoSuchRule):
        pod.rules.delete(rule)


def _delete_route(pod: KernelNetwork, route: Route) -> None:
    with suppress(linux.NoSuchRoute, linux.NoSuchLink):
        pod.routes.delete(route)


def _restore(pod: KernelNetwork, route: Route, record: Record) -> None:
    """Puts a route back if its interface is still there: an earlier plugin removes that next."""
    with suppress(linux.RouteExists, linux.NoSuchLink, linux.Unreachable):
        if pod.links.get(record.ifname).ifindex == record.before["ifindex"]:
            pod.routes.add(route)


def _remove_rules(pod: KernelNetwork, record: Record, call: Call) -> None:
    """Removes rules without a record: those for the addresses that the interface has."""
    with suppress(linux.NoSuchLink):
        index = pod.links.get(record.ifname).ifindex
        own = {ip_network(address.interface.ip) for address in pod.addresses.list(index)}
        table = parse_settings(call.config).table
        for family in _FAMILIES:
            for rule in pod.rules.list(family):
                if rule.source in own and table in (None, rule.table):
                    _delete_rule(pod, rule)


def _encode(plan: Plan) -> Object:
    return {
        "rules": [[rule.priority, rule.table, str(rule.source)] for rule in plan.rules],
        **{key: encode_routes(getattr(plan, key)) for key in ("added", "hints", "removed")},
    }


def _decode(state: Object) -> Plan:
    sources = [(priority, table, ip_network(source)) for priority, table, source in state["rules"]]
    rules = tuple(Rule(priority, table, source.version, source=source) for priority, table, source in sources)
    parts = {key: tuple(map(decode_route, state[key])) for key in ("added", "hints", "removed")}
    return Plan(rules, **parts)


PLUGIN = Sbr()
