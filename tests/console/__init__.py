"""The console in a real browser: Debian's Chromium, without a screen. `make test-console`."""
