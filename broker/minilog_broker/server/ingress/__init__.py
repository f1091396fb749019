"""The entrance of a broker: its ports, the gates in front of its services, and the limits of calls.

listening, broker_access  the listeners of one broker, opened with their gates
transport                 what carries calls and streams: ports, connections and their guard, TLS
rules                     what each call and each message has to pass, whatever carries it
"""
