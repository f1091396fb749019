"""What Spark runs as Python: a fork of the helper of forked_workers.py has its streams, and its exit code."""

import json
import os
import signal
import socket
import sys


def main() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as helper:
        helper.connect(sys.argv[1])
        request = {"arguments": sys.argv[2:], "environment": dict(os.environ), "directory": os.getcwd()}
        socket.send_fds(helper, [json.dumps(request).encode()], [0, 1, 2])
        for each in (0, 1, 2):
            os.close(each)
        told = helper.recv(16)
    code = int(told or b"1")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
