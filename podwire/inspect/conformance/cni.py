"""Tests a CNI plugin in any language against the specification, on a private host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.inspect.conformance.cni_cases import case
from podwire.inspect.conformance.cni_subject import INTERFACE, STANDARD, Object, Subject
from podwire.inspect.conformance.report import Report, Unmet, run_cases
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.protocols.cni import versions

SPECIFICATION = "CNI specification 1.1.0"
NAMESPACES = Path("/run/netns")
NETWORK = "podwire-test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    program: Path
    path: Sequence[Path]
    """Directories of other plugins, for delegation."""
    version: str = ""
    """Of requests; empty: the newest that the plugin supports."""
    config: Object | None = None
    kind: str = ""
    """`interface`, `ipam` or `chained`; empty: by the name of the program, else an interface."""
    seconds: float = 30.0


def make_subject(options: Options) -> Subject:
    """Without a configuration, that of a well-known plugin with the same name, or the least that is valid."""
    kind, standard = STANDARD.get(options.program.name, (INTERFACE, {}))
    given = standard if options.config is None else options.config
    head = {"cniVersion": options.version or versions.LATEST, "name": NETWORK, "type": options.program.name}
    subject = Subject(
        program=options.program,
        path=[options.program.parent, *options.path],
        kind=options.kind or kind,
        config={**head, **given, "cniVersion": head["cniVersion"]},
        known_pool=options.config is None and _has_pool(standard),
        namespaces=KernelNamespaces(NAMESPACES),
        seconds=options.seconds,
    )
    return subject if options.version else subject.at_version(_newest(subject))


def _newest(subject: Subject) -> str:
    """The newest version that the plugin and these cases know; a plugin that does not tell is asked for the latest."""
    try:
        supported = subject.call("VERSION", None, {"cniVersion": versions.LATEST}).object.get("supportedVersions", [])
    except Unmet:
        supported = []
    return max(
        (version for version in versions.KNOWN if version in supported),
        key=versions.KNOWN.index,
        default=versions.LATEST,
    )


def _has_pool(config: Object) -> bool:
    return bool(config.get("ipam", {}).get("ranges"))


def run_cni_cases(options: Options, shown: Callable[[str], None]) -> Report:
    """Runs all cases. The caller is on a private host."""
    subject = make_subject(options)
    report = Report(f"{options.program.name} with cniVersion {subject.version}", SPECIFICATION)
    run_cases(report, case.all, subject, shown)
    return report
