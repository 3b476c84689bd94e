"""A hub of models for tests, and the host that it leads to for the files themselves.

    with Hub({"tiny-Q8_0.gguf": data}) as hub:
        hub.endpoint           # for HF_ENDPOINT; the repository is org/tiny
        hub.cuts = [1000, 2000]    # the next answers break off after so many bytes
        hub.served, hub.requests   # bytes of files; (host, path, headers)
"""
import hashlib
import http.server
import json
import socketserver
import threading
import time
import urllib.parse

from chat_server import Handler as HttpHandler


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass


class Hub:
    def __init__(self, files):
        self.files = files
        self.digests = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
        self.sizes = {path: len(data) for path, data in files.items()}
        self.listed = True  # whether the list tells them
        self.code = 200     # of the list
        self.endless = None  # "list" or "refusal": what is sent without an end
        self.ranges = True
        self.etag = '"version-1"'
        self.lengths = True  # whether the host says how long an answer is
        self.cuts = []
        self.delay = 0.0    # before each 4 KB
        self.served = 0
        self.requests = []
        self.lock = threading.Lock()
        self.hub, self.cdn = Server(("127.0.0.1", 0), HubHandler), Server(("127.0.0.1", 0), FileHandler)
        self.hub.state = self.cdn.state = self
        self.endpoint = f"http://127.0.0.1:{self.hub.server_address[1]}"

    def __enter__(self):
        for server in (self.hub, self.cdn):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()


class Handler(HttpHandler):
    def note(self, host):
        with self.server.state.lock:
            self.server.state.requests.append((host, self.path, dict(self.headers)))


    def without_an_end(self, code):
        self.send_response(code)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        for _ in range(1 << 10):
            self.wfile.write(b" " * (1 << 16))
        self.close_connection = True


class HubHandler(Handler):
    def do_GET(self):
        self.note("hub")
        hub = self.server.state
        if hub.endless == "list":
            return self.without_an_end(200)
        path = urllib.parse.urlparse(self.path).path
        if path == "/api/models/org/tiny/tree/main":
            if hub.code != 200:
                return self.whole(hub.code, b"", X_Error_Message="Access to model org/tiny is restricted.")
            entries = [{"type": "file", "path": name, "oid": "0" * 40, "size": hub.sizes[name]} for name in hub.files]
            if hub.listed:
                for entry in entries:
                    entry["lfs"] = {"oid": hub.digests[entry["path"]], "size": hub.sizes[entry["path"]], "pointerSize": 134}
            query = urllib.parse.urlparse(self.path).query
            half = len(entries) // 2  # two pages
            if "cursor" in query or half == 0:
                return self.whole(200, json.dumps(entries[half:]).encode())
            return self.whole(200, json.dumps(entries[:half]).encode(), Link=f'<{hub.endpoint}{path}?recursive=true&cursor=x>; rel="next"')
        name = path.removeprefix("/org/tiny/resolve/main/")
        if name not in hub.files:
            return self.whole(404, b'{"error":"Repository not found"}')
        location = f"http://localhost:{hub.cdn.server_address[1]}/{hub.digests[name]}?Signature=a%2Fb&name={name}"
        self.whole(302, b"Found", Location=location, X_Linked_Etag=f'"{hub.digests[name]}"', X_Linked_Size=str(hub.sizes[name]))


class FileHandler(Handler):
    def do_GET(self):
        self.note("cdn")
        hub = self.server.state
        if hub.endless == "refusal":
            return self.without_an_end(403)
        data = hub.files[urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)["name"][0]]
        begin, code, headers = 0, 200, {"ETag": hub.etag}
        only_of = self.headers.get("If-Range")
        same = only_of is None or (only_of == hub.etag and not only_of.startswith("W/"))
        if hub.ranges and self.headers["Range"] and same:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            begin, code = int(first), 206
            end = min(int(last) + 1, len(data)) if last else len(data)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
            data = data[:end]
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        if hub.lengths:
            self.send_header("Content-Length", str(len(data) - begin))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        with hub.lock:
            most = begin + hub.cuts.pop(0) if hub.cuts else len(data)
        for at in range(begin, min(most, len(data)), 4096):
            time.sleep(hub.delay)
            piece = data[at:min(at + 4096, most)]
            self.wfile.write(piece)
            with hub.lock:
                hub.served += len(piece)
        if most < len(data):
            self.close_connection = True
