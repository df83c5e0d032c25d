"""The kind of apiextensions.k8s.io; kinds/crds has the rules."""
