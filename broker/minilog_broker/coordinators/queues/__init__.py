"""The coordinator of queues: leases of records for one worker alone, and the settlement of each record by itself."""
