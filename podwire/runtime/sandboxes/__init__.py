"""Pod sandboxes: RunPodSandbox, StopPodSandbox, RemovePodSandbox; namespaces, shared memory and pod files."""
