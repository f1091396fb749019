"""What carries calls and streams: ports, connections and their guard, TLS."""
