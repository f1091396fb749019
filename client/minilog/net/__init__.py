"""The brokers as one client sees them: channels, metadata, streams, coordinators."""
