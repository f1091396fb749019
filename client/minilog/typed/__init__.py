"""Topics with a schema: what their columns are, and how they may change."""
