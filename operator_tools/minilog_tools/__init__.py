"""What people use beside a broker: the command line, the console, the demo, and clusters on one machine."""

import os

# The command line has its own errors, so gRPC writes nothing between them. gRPC reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
