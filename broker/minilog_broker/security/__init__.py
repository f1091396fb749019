"""Who somebody is, and what he may do. Pure, and below all other parts of a broker."""
