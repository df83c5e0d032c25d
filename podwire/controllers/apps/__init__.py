"""Workload controllers: ReplicaSet, ReplicationController, Deployment, DaemonSet, StatefulSet."""
