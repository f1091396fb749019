"""The command line: one file per command group, thin over the client library and the server."""
