"""A node's network plugin: policies, routes and meshes of its pods, from the resources of the API server."""
