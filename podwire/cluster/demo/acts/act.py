"""An act of the demo: a flow, played with real pods and shown as it was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.cluster.demo.step import Step
from podwire.cluster.up.layout import Layout

TELLS = 22
"""The minor version from which kubectl tells the server what was typed."""
WAITS = 23
"""The minor version from which kubectl waits for any field."""
NODE = "node-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoContext:
    """Where an act is played, and with what."""

    layout: Layout
    minor: int
    """Of kubectl's version."""
    form: str = "text"
    """How diagrams are drawn."""

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
    """The pod whose way is shown."""
    steps: Sequence[Step]
    scheduler: str
    """What the scheduler knew of the network."""
    dies: str
    """What happens to a pod's start while the plugin is dead."""


def shown(context: DemoContext, pod: str, flow: str, *, refused: bool = False) -> list[Step]:
    """The pod's way, and how it compares with its flow."""
    return [
        Step(
            name=f"trace {pod}",
            sentence="Its way, as it was recorded: every arrow is a call that was made.",
            command=context.podwire(f"trace {pod}", f"--flow {flow} --brief --format {context.form}"),
            lines=400,
            shows="CNIPlugin",
            saves=f"{flow}.html" if context.form == "html" else "",
        ),
        Step(
            name=f"check {pod}",
            sentence="It is the flow that people draw, but for what was typed: this kubectl keeps that."
            if refused
            else "It is the flow that people draw: nothing is missing, swapped or extra.",
            command=context.podwire(f"trace {pod}", f"--check {flow}"),
            refused=refused,
            shows=": 1 deviations" if refused else ": no deviations",
        ),
    ]


def runs(pod: str, sentence: str = "Scheduled, given its network, started.") -> Step:
    return Step(
        name=f"{pod} runs",
        sentence=sentence,
        command=f"kubectl wait --for=condition=Ready pod/{pod} --timeout=50s",
        shows="condition met",
    )


def applied(file: str, sentence: str, shows: str) -> Step:
    return Step(name=f"apply {file}", sentence=sentence, command=f"kubectl apply -f {file}", shows=shows, lines=8)
