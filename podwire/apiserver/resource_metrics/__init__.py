"""metrics.k8s.io: usage of nodes and pods, for `kubectl top` and autoscalers, from the kubelets when somebody asks."""

from podwire.apiserver.resource_metrics.kinds import metrics_resources
from podwire.apiserver.resource_metrics.sampler import UsageSampler

__all__ = ["UsageSampler", "metrics_resources"]
