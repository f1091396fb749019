"""The metadata quorum: who writes the one log of metadata, and what of it is committed."""
