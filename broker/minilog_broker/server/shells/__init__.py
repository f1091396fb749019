"""The shells around the cores. They carry effects out, and give the outcomes back to the cores."""
