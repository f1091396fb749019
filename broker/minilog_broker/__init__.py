"""One broker of minilog, its command line, and its console."""

import os

# A broker's log has a line of JSON for each event, and the command line has its own errors. So gRPC writes nothing
# between them. gRPC reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
