"""The rules of replication, as pure functions without the partition around them."""
