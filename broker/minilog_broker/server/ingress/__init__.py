"""The door of a broker: its ports, the gates in front of its services, and what bounds the calls that come by them."""
