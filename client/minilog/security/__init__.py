"""What client and broker share to know each other: SCRAM, access rules, quotas."""
