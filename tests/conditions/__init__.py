"""What a `where` means is what it means to Spark: rows of all types, conditions on them, and Spark's recorded answers.

`rows.py` has the rows, `recorded.tsv` the conditions with the answers, `recorded.py` reads and writes them. Unit tests
compare minilog with the answers. A test of Spark asks it again. This asks Spark for all answers, and writes them:

    python -m tests.spark.answers --rewrite

A new condition is a line of the file with the condition alone.
"""
