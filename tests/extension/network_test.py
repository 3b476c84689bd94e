"""The way to a server, as the environment has it: proxies, whom to trust, and HTTP/2 where libcurl has that.

Each asks in a process of its own, whose environment is made for it.
"""
import ctypes
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import unittest

import harness
from chat_server import ChatServer

CERTIFICATE = str(harness.MODELS.parent / "self_signed.pem")  # vouches for itself, as 127.0.0.1
SCRIPT = """
import harness, sys
db = harness.connect()
db.execute("INSERT INTO temp.lm_models(name, path, options) VALUES ('default', ?, '{\\"retries\\":0,\\"concurrency\\":16}')", (sys.argv[1],))
try:
    print(harness.value(db, sys.argv[2]))
except Exception as error:
    print("error:", error)
"""
VARIABLES = [name + "_proxy" for name in ("http", "https", "all", "no")] + ["SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"]


def ask(path, sql="SELECT generate('x')", **variables):
    environment = {name: value for name, value in os.environ.items() if name.lower() not in [known.lower() for known in VARIABLES]}
    ran = subprocess.run([sys.executable, "-c", SCRIPT, path, sql], env={**environment, "PYTHONPATH": os.path.dirname(__file__), **variables},
                         stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.strip()


def with_tls(plain, protocols=()):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    if protocols:
        context.set_alpn_protocols(protocols)
    return context.wrap_socket(plain, server_side=True)


class Listener:
    """Serves each connection on a thread of its own."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.guarded, args=(connection,), daemon=True).start()

    def guarded(self, connection):
        try:
            with connection:
                self.serve(connection)
        except (OSError, EOFError):
            pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Proxy(Listener):
    """Leads where its clients' first lines say: tunnels (CONNECT) and plain requests."""

    def __init__(self):
        self.lines = []
        super().__init__()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := client.recv(65536)):
                return
            head += data
        method, target, _ = head.split(b"\r\n")[0].decode().split()
        self.lines.append((method, target))
        host, port = (target if method == "CONNECT" else target.split("/")[2]).split(":")
        with socket.create_connection((host, int(port))) as server:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(head)
            threading.Thread(target=self.pump, args=(server, client), daemon=True).start()
            self.pump(client, server)


class Http2Server(Listener):
    """As much of HTTP/2 as two kinds of requests need. Answers POSTs once `together` of them are open on one connection."""
    DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
    END_STREAM, ACK, END_HEADERS = 1, 1, 4

    def __init__(self, together):
        self.together = together
        self.protocols = []
        self.lock = threading.Lock()
        super().__init__()

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    def answer(self, stream, body):
        status_200 = b"\x88"  # of HPACK's static table
        return self.frame(self.HEADERS, self.END_HEADERS, stream, status_200) + self.frame(self.DATA, self.END_STREAM, stream, body)

    @staticmethod
    def take(file, size):
        data = file.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def serve(self, plain):
        connection = with_tls(plain, ["h2"])
        with self.lock:
            self.protocols.append(connection.selected_alpn_protocol())
        file = connection.makefile("rb")
        self.take(file, len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        connection.sendall(self.frame(self.SETTINGS, 0, 0))
        bodies, whole = {}, []
        while True:
            head = self.take(file, 9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            payload = self.take(file, int.from_bytes(head[:3], "big"))
            if kind in (self.SETTINGS, self.PING) and not flags & self.ACK:
                connection.sendall(self.frame(kind, self.ACK, 0, payload if kind == self.PING else b""))
            elif kind == self.HEADERS and flags & self.END_STREAM:
                connection.sendall(self.answer(stream, b'{"data":[{"id":"tiny","owned_by":"vllm"}]}'))
            elif kind == self.DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
                whole += [stream] if flags & self.END_STREAM else []
            while len(whole) >= self.together:
                for stream in whole[:self.together]:
                    text = "re: " + json.loads(bodies[stream])["messages"][-1]["content"]
                    event = {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}
                    connection.sendall(self.answer(stream, b"data: " + json.dumps(event).encode() + b"\n\n"))
                del whole[:self.together]


class NetworkTest(unittest.TestCase):
    def opened(self, listener):
        self.addCleanup(listener.close)
        return listener

    def chat(self, tls=False):
        server = ChatServer()
        if tls:
            server.socket = with_tls(server.socket)
            server.url = server.url.replace("http:", "https:")
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def test_a_proxy_for_plain_requests(self):
        server, proxy = self.chat(), self.opened(Proxy())
        at = "http://" + proxy.address
        self.assertEqual(ask(server.url, http_proxy=at), "re: x")
        self.assertEqual(proxy.lines[0], ("GET", server.url + "/models"))
        before = len(proxy.lines)
        self.assertEqual(ask(server.url, https_proxy=at), "re: x")  # of another scheme
        self.assertEqual(ask(server.url, http_proxy=at, no_proxy="elsewhere.example,127.0.0.1"), "re: x")
        self.assertEqual(len(proxy.lines), before)
        self.assertEqual(ask(server.url, all_proxy=at), "re: x")
        self.assertGreater(len(proxy.lines), before)

    def test_a_proxy_that_is_not_there(self):
        proxy = Proxy()
        proxy.close()
        server = self.chat()
        self.assertRegex(ask(server.url, http_proxy="http://" + proxy.address), "^error: .*127.0.0.1")
        self.assertEqual(server.requests, [])

    def test_a_tunnel(self):
        server, proxy = self.chat(tls=True), self.opened(Proxy())
        at = "http://" + proxy.address
        self.assertEqual(ask(server.url, https_proxy=at, SSL_CERT_FILE=CERTIFICATE), "re: x")
        self.assertEqual(set(proxy.lines), {("CONNECT", server.url.split("/")[2])})
        # Who is trusted does not depend on the way.
        self.assertRegex(ask(server.url, https_proxy=at), "^error: .*certificate")
        self.assertEqual(len(server.requests), 1)

    def test_whom_to_trust(self):
        server = self.chat(tls=True)
        self.assertEqual(ask(server.url, SSL_CERT_FILE=CERTIFICATE), "re: x")
        self.assertEqual(ask(server.url, CURL_CA_BUNDLE=CERTIFICATE, SSL_CERT_FILE="/no/such.pem"), "re: x")
        self.assertEqual(len(server.requests), 2)
        self.assertRegex(ask(server.url), "^error: .*certificate")
        self.assertRegex(ask(server.url, SSL_CERT_FILE="/no/such.pem"), "^error: .*(/no/such.pem|certificate)")
        # It vouches for its own name only.
        self.assertRegex(ask(server.url.replace("127.0.0.1", "localhost"), SSL_CERT_FILE=CERTIFICATE), "^error: .*(certificate|host)")
        self.assertEqual(len(server.requests), 2)

    def test_many_rows_over_one_connection_of_http_2(self):
        names = [name for name in ("libcurl.so.4", "libcurl-gnutls.so.4") if self.loads(name)]
        version = ctypes.CDLL(names[0]).curl_version
        version.restype = ctypes.c_char_p
        if b"nghttp2" not in version():
            self.skipTest("libcurl has no HTTP/2: " + version().decode())
        rows = 12
        server = self.opened(Http2Server(rows))
        sql = "SELECT count(*) || group_concat(DISTINCT value = 're: row ' || key) FROM lm_each('%s')" % json.dumps([f"row {i}" for i in range(rows)])
        self.assertEqual(ask(f"https://{server.address}/v1", sql, SSL_CERT_FILE=CERTIFICATE), f"{rows}1")
        self.assertEqual(server.protocols, ["h2"])

    @staticmethod
    def loads(name):
        try:
            return ctypes.CDLL(name)
        except OSError:
            return None


if __name__ == "__main__":
    unittest.main()
