"""One client's network: channels to brokers, metadata, streams, coordinators."""
