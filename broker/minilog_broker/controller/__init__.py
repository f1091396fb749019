"""The metadata image and the decisions on it: lives of brokers, leaders, in-sync replicas, topics."""
