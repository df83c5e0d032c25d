"""DynamicResources: a pure allocator of devices for the claims of a pod, its cache, and the writer of claims."""
