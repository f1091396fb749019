"""The asyncio shell: gRPC services, timers, disk threads and the life cycle around the cores that do no I/O."""
