"""The blocking clients: thin facades over the asyncio ones, on one background event loop per process."""
