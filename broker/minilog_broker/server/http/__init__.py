"""What a broker tells over HTTP: whether it lives, whether it is ready, its metrics. Imported only where it is on."""
