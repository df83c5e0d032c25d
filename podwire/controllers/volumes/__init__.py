"""PersistentVolumes: binding, reclaiming, protection, ephemeral claims, expansion, attachment, local directories."""
