"""The demonstration: real data through brokers, Spark and a crash, and then counted."""
