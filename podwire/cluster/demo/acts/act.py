"""An act of the demo: a flow, played with real pods and shown as it was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.cluster.demo.step import Step
from podwire.cluster.up.layout import Layout

TELLS = 22
"""The minor version since which kubectl sends the typed command in headers."""
WAITS = 23
"""The minor version since which kubectl waits for any field."""
NODE = "node-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoContext:
    """The cluster of the demo, and its tools."""

    layout: Layout
    minor: int
    """kubectl's minor version."""
    form: str = "text"
    """The format of diagrams."""
    registry: bool = False
    """Whether the first pod's image comes from a registry on the node."""

    def podwire(self, command: str, rest: str = "") -> str:
        return f"podwire {command} --prefix {self.layout.prefix} {rest}".rstrip()

    def on_node(self, words: str) -> str:
        return self.podwire("node exec", f"{NODE} -- {words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    number: int
    flow: str
    title: str
    sentence: str
    pod: str
    """The pod whose trace is shown."""
    steps: Sequence[Step]
    scheduler: str
    """The scheduler's knowledge of the network."""
    dies: str
    """The effect on a start while the plugin is down."""


def shown(context: DemoContext, pod: str, flow: str, *, refused: bool = False) -> list[Step]:
    """Returns the steps that show the trace of a pod and compare it with its flow."""
    return [
        Step(
            name=f"trace {pod}",
            sentence="Its trace as recorded: every arrow is a call that was made.",
            command=context.podwire(f"trace {pod}", f"--flow {flow} --brief --format {context.form}"),
            lines=400,
            shows="CNIPlugin",
            saves=f"{flow}.html" if context.form == "html" else "",
        ),
        Step(
            name=f"check {pod}",
            sentence="It matches the expected flow except for the typed command, which this kubectl does not send."
            if refused
            else "It matches the expected flow: no call is missing, swapped or extra.",
            command=context.podwire(f"trace {pod}", f"--check {flow}"),
            refused=refused,
            shows=": 1 deviations" if refused else ": no deviations",
        ),
    ]


def runs(pod: str, sentence: str = "Wait until it is scheduled, has its network, and runs.") -> Step:
    return Step(
        name=f"{pod} runs",
        sentence=sentence,
        command=f"kubectl wait --for=condition=Ready pod/{pod} --timeout=50s",
        shows="condition met",
    )


def applied(file: str, sentence: str, shows: str) -> Step:
    return Step(name=f"apply {file}", sentence=sentence, command=f"kubectl apply -f {file}", shows=shows, lines=8)
