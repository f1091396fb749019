"""One broker of minilog."""

import os

# A broker's log has a line of JSON for each event, so gRPC writes nothing between them. gRPC reads this when it is
# imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
