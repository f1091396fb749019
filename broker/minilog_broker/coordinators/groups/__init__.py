"""The coordinator of groups: the offsets they committed, by themselves and in transactions."""
