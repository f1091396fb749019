"""The entrance of a broker: its ports, the gates in front of its services, and the limits of calls."""
