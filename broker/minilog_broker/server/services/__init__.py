"""What others ask of this broker: gRPC's services, and what bounds and checks their requests."""
