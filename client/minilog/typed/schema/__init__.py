"""Columns, versions of a schema, and how these may change."""
