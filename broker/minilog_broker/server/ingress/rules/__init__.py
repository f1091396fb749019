"""What each call and each message has to pass, whatever carries it: the gate, limits, quotas, memory."""
