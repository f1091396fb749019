"""The metadata image and the decisions made on it: lives of brokers, leaders, in-sync replicas, topics."""
