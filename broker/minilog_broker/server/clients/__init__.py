"""What this broker asks of others: its channels, streams and calls."""
