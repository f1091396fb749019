"""The story of docs/guides/cdc.md as one command: `python -m tools.cdc_story`.

`story.py` tells it: brokers, `jobs/cdc.py` as a process, kills, and the comparison at the end. It takes the changes
of a table from `changes.jsonl` and the table itself from `table.jsonl`. `postgres.py` made both with a real Postgres
15, by `python -m tools.cdc_story --write`: it runs statements, reads them by logical decoding (`test_decoding`), and
`debezium_events.py` puts them into Debezium's envelope. `--postgres` does the same anew for one telling.
"""
