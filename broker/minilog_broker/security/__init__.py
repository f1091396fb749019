"""Who is who, and who may do what: pure, below everything else of the broker."""
