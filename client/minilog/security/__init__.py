"""What client and broker share to know each other: secrets, SCRAM, settings and credentials."""
