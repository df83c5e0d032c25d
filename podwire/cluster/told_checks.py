"""Which CHECKs of CNI a trace tells."""

from collections.abc import Mapping


class CheckFilter:
    """CHECK is asked as long as a pod lives. The first of each plugin is told, and those that follow one that failed;
    were all of them, there would be little else."""

    def __init__(self) -> None:
        self._quiet: dict[str, set[tuple[str, str]]] = {}

    def begun(self, plugin: str, env: Mapping[str, str]) -> bool:
        """Whether the call that begins is to be told; those of other verbs always are."""
        container = env.get("CNI_CONTAINERID", "")
        match env.get("CNI_COMMAND"):
            case "CHECK":
                return _attachment(plugin, env) not in self._quiet.get(container, ())
            case "ADD" | "DEL":
                self._quiet.pop(container, None)
        return True

    def ended(self, plugin: str, env: Mapping[str, str], code: int) -> None:
        if env.get("CNI_COMMAND") != "CHECK":
            return
        quiet = self._quiet.setdefault(env.get("CNI_CONTAINERID", ""), set())
        (quiet.discard if code else quiet.add)(_attachment(plugin, env))


def _attachment(plugin: str, env: Mapping[str, str]) -> tuple[str, str]:
    return plugin, env.get("CNI_IFNAME", "")
