"""Storage of lakes: object store, commit log, seals, compaction and vacuum."""
