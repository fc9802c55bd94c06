"""Routes between the servers of a cluster: a connection for each pair and direction, which can be cut."""

import contextlib
import socket
import threading


class Route:
    """Copies bytes between a port of its own and another one, as long as it is open."""

    def __init__(self, to_port):
        self.to_port, self.is_open, self.sockets = to_port, True, set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                far = self.is_open and socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                far = None
            if not far:
                near.close()
                continue
            self.sockets |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(source, target), daemon=True).start()

    def copy(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for each in (source, target):
            self.end(each)

    def end(self, sock):
        self.sockets.discard(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def set_open(self, is_open):
        self.is_open = is_open
        if not is_open:
            for each in list(self.sockets):
                self.end(each)

    def close(self):
        self.set_open(False)
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
