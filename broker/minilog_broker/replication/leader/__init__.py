"""A replica that leads: its appends, the entries that wait, its ISR, and the reports of its leadership."""
