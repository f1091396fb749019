"""The gRPC services of this broker, and the limits and checks of their requests."""
