"""Wrong rules, each a known way to get replication wrong; the numbers are those of docs/spec/wrong-rules.md.

A wrong rule is a function that gives patches: (class or module, attribute, what stands there instead). Nothing else in
the simulator knows of them.
"""
