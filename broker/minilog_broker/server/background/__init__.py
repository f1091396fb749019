"""What a broker does by itself from time to time, in slices that leave the disk to others in between."""
