"""The object store, the commit log and the files of a lake."""
