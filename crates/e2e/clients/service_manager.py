"""A service manager with a store of descriptors, as systemd's: service_manager.py PROGRAM [ARGUMENT...]

Starts the program with NOTIFY_SOCKET, and keeps the descriptors that it stores (sd_pid_notify_with_fds(3)).
HUP restarts it: the program is told to end, and the next one is started with what the store has (sd_listen_fds(3)).
USR1 ends it, and keeps the store until HUP. TERM ends both. Prints a line for each: "started PROCESS with COUNT descriptors",
"ended, and COUNT descriptors wait".
"""

import array
import ctypes
import os
import select
import signal
import socket
import sys

DESCRIPTORS_MAX = 253
PR_SET_PDEATHSIG = 1
FIRST = 3


class Store:
    """Descriptors with their names, in the order in which they came."""

    def __init__(self):
        self.kept = []

    def hear(self, notifications):
        """Takes one message, and what comes with it."""
        room = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
        message, ancillary, _, _ = notifications.recvmsg(65536, room)
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data)
        lines = message.decode().splitlines()
        words = dict(line.split("=", 1) for line in lines if "=" in line)
        name = words.get("FDNAME", "stored")
        if "FDSTORE" in words:
            self.kept += [(name, descriptor) for descriptor in descriptors]
            return
        if "FDSTOREREMOVE" in words:
            for kept, descriptor in self.kept:
                if kept == name:
                    os.close(descriptor)
            self.kept = [(kept, descriptor) for kept, descriptor in self.kept if kept != name]
        # A barrier among them: its end tells that everything before it was read.
        for descriptor in descriptors:
            os.close(descriptor)

    def pass_on(self):
        """In the child: puts the descriptors where a program looks for them."""
        # Above all of them first, so that none is overwritten.
        above = [os.dup2(descriptor, 1000 + at) for at, (_, descriptor) in enumerate(self.kept)]
        for at, descriptor in enumerate(above):
            os.dup2(descriptor, FIRST + at, inheritable=True)
            os.close(descriptor)


def start(command, store, address):
    """Starts the program; it ends with this process."""
    process = os.fork()
    if process:
        say(f"started {process} with {len(store.kept)} descriptors")
        return process
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    environment = dict(os.environ, NOTIFY_SOCKET=address, FDSTORE="16")
    if store.kept:
        environment["LISTEN_PID"] = str(os.getpid())
        environment["LISTEN_FDS"] = str(len(store.kept))
        environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in store.kept)
        store.pass_on()
    os.execvpe(command[0], command, environment)


def tell(process, number):
    """Sends a signal to the program, if there is one."""
    if process:
        os.kill(process, number)


def say(words):
    print(words, file=sys.stderr, flush=True)


def main():
    command = sys.argv[1:]
    name = f"service-manager-{os.getpid()}"
    notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notifications.bind("\0" + name)
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    orders = [signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM]
    for number in [*orders, signal.SIGCHLD]:
        signal.signal(number, lambda *_: None)
    store, process, order = Store(), None, signal.SIGHUP
    while True:
        if not process and order == signal.SIGTERM:
            return
        if not process and order == signal.SIGHUP:
            process, order = start(command, store, f"@{name}"), None
        for ready in select.select([notifications, woken], [], [])[0]:
            if ready is notifications:
                store.hear(notifications)
                continue
            for number in woken.recv(64):
                if number in orders:
                    order = number
                    tell(process, signal.SIGTERM)
        if not process or not os.waitpid(process, os.WNOHANG)[0]:
            continue
        while select.select([notifications], [], [], 0)[0]:
            store.hear(notifications)
        process, order = None, order or signal.SIGTERM
        say(f"ended, and {len(store.kept)} descriptors wait")


main()
