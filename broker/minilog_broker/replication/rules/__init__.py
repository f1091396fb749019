"""The rules of replication without the partition around them. Pure."""
