"""The consumer groups: their committed offsets, their descriptions and their members."""
