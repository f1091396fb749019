"""Rows of topics with a schema, on their way into batches and out of them."""
