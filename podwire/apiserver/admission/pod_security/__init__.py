"""PodSecurity: the Pod Security Standards, enforced, audited or warned about by labels of namespaces."""
