"""What each page shows: a function from a visit to the values of its template."""
