"""Revisions and watches: memory, SQLite, etcd. Speaks: storage."""
