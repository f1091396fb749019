"""What is counted of a broker where HTTP is on: names, counters that shells add to, and what is read at a scrape."""
