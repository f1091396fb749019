"""The periodic work of a broker, in slices that leave the disk to other work in between."""
