"""The offsets of consumer groups: asked, committed, described."""
