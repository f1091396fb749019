"""The process under a broker: its clock, its loop, its port, its memory, its descriptors."""
