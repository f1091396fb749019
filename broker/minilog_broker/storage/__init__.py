"""The log on disk, over one small file interface."""
