"""State on disk that survives crashes: records, atomic files, file locks. Synchronous, light to import."""
