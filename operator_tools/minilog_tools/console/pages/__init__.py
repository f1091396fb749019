"""The pages: of each a function from a visit to the values of its template."""
