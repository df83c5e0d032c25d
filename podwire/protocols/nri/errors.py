"""Why what a plugin answered is not taken.

Refused
  Conflict        it sets what another plugin has set
  BadAdjustment   it cannot be done, ever: the field and the reason
BadAnnotation     what a pod says about plugins cannot be read
"""


class Refused(Exception):
    """An answer that changes nothing, because something in it cannot be taken."""


class Conflict(Refused):
    """Two plugins want to decide the same thing; in the words that containerd's users search for."""

    def __init__(self, field: str, key: str, plugins: tuple[str, str]) -> None:
        newcomer, owner = plugins
        what = f"{field} {key}" if key else field
        super().__init__(f'plugins "{newcomer}" and "{owner}" both tried to set {what}')
        self.field = field
        self.key = key
        self.plugins = plugins


class BadAdjustment(Refused):
    """`field` is the path in the answer: adjust.mounts[0].destination."""

    def __init__(self, field: str, reason: str, plugin: str = "") -> None:
        who = f'plugin "{plugin}": ' if plugin else ""
        super().__init__(f"{who}{field}: {reason}")
        self.field = field
        self.reason = reason
        self.plugin = plugin

    def by(self, plugin: str) -> "BadAdjustment":
        """The same, naming whose answer it was."""
        return BadAdjustment(self.field, self.reason, plugin)


class BadAnnotation(ValueError):
    """The annotation of a pod and what is wrong with it."""

    def __init__(self, annotation: str, reason: str) -> None:
        super().__init__(f"invalid annotation {annotation}: {reason}")
        self.annotation = annotation
        self.reason = reason
