"""What the process gives: its clock, its loop, its port, its memory, its descriptors."""
