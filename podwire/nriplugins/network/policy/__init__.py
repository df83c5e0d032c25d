"""NetworkPolicy: what it says (`Model`), why (`explain`), and in the kernel before a pod's first packet (`Kernel`)."""

from podwire.nriplugins.network.policy.content import Content, DesiredContent
from podwire.nriplugins.network.policy.explain import Explained, explain
from podwire.nriplugins.network.policy.kernel import Kernel
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.values import LocalPod

__all__ = ["Content", "DesiredContent", "Explained", "Kernel", "LocalPod", "Model", "explain"]
