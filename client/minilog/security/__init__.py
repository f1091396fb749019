"""Who is who: certificates, passwords and tokens of clients; what brokers need of it, too."""
