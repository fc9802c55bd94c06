"""WebSocket over a Unix socket, as much of it as codex speaks: text frames, pings and close."""

import base64
import hashlib
import os
import socket

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


def encode(payload, opcode=TEXT, masked=False):
    head = bytearray([0x80 | opcode])
    mask_bit = 0x80 if masked else 0
    if len(payload) < 126:
        head.append(mask_bit | len(payload))
    elif len(payload) < 65536:
        head += bytes([mask_bit | 126]) + len(payload).to_bytes(2, "big")
    else:
        head += bytes([mask_bit | 127]) + len(payload).to_bytes(8, "big")
    if masked:
        head += b"\0\0\0\0"  # a mask of zeros leaves the payload as it is
    return bytes(head) + payload


def unmask(payload, mask):
    if mask == b"\0\0\0\0" or not payload:
        return payload
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(len(payload), "big")


class Decoder:
    """Turns bytes into (opcode, payload); joins fragments."""

    def __init__(self):
        self.buffer = bytearray()
        self.fragments = []

    def feed(self, data):
        self.buffer += data
        while (frame := self.next_frame()) is not None:
            final, opcode, payload = frame
            if opcode >= CLOSE:
                yield opcode, payload
            elif not final:
                self.fragments.append(payload)
            else:
                yield TEXT, b"".join([*self.fragments, payload])
                self.fragments = []

    def next_frame(self):
        buffer = self.buffer
        if len(buffer) < 2:
            return None
        size, at = buffer[1] & 0x7F, 2
        if size >= 126:
            at += 2 if size == 126 else 8
            size = int.from_bytes(buffer[2:at], "big")
        mask = bytes(buffer[at : at + 4]) if buffer[1] & 0x80 else b"\0\0\0\0"
        at += 4 if buffer[1] & 0x80 else 0
        if len(buffer) < at + size:
            return None
        frame = (bool(buffer[0] & 0x80), buffer[0] & 0x0F, unmask(bytes(buffer[at : at + size]), mask))
        del buffer[: at + size]
        return frame


def accept_key(key):
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


def handshake_answer(head):
    """The response to a handshake, or None if `head` is another request."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "sec-websocket-key":
            return (
                "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
                f"sec-websocket-accept: {accept_key(value.strip())}\r\n"
                "x-codex-websocket-max-unfragmented-message-bytes: 16777216\r\n\r\n"
            ).encode()
    return None


def read_head(connection):
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(65536)
        if not data:
            raise ConnectionError("closed during the handshake")
        head += data
    head, _, rest = head.partition(b"\r\n\r\n")
    return head, rest


def connect(path, timeout_s=5):
    """Connects and shakes hands; returns the socket and the bytes that came after the response."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    connection.connect(os.path.realpath(path))
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        (
            "GET /rpc HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        ).encode()
    )
    head, rest = read_head(connection)
    if b" 101 " not in head.split(b"\r\n")[0]:
        connection.close()
        raise ConnectionError(head.split(b"\r\n")[0].decode("latin-1"))
    connection.settimeout(None)
    return connection, rest
