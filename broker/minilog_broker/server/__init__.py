"""The asyncio shell around the cores: gRPC services, timers, disk threads and the life cycle."""
