"""The metrics of a broker where HTTP is on: names, counters that shells add to, and values that a scrape reads."""
