"""Generated from proto/minilog/v1 by tools/generate_stubs.py: do not edit."""
