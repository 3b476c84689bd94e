"""A server of OpenAI's chat API for tests: answers what it is told to, and fails as it is told to.

    with ChatServer(answer=lambda body: "yes") as server:
        ... server.url ...
        server.requests      # bodies, in the order they came
"""
import http.server
import json
import random
import socket
import socketserver
import threading
import time


class ChatServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer=None, owner="vllm", faults=(), delay=0.0, slots=None, seed=1, first=None, handler=None, fields=None, context=None, events=None, models=None, streams=True, counted=None):
        super().__init__(("127.0.0.1", 0), handler or Handler)
        self.answer = answer or (lambda body: "re: " + body["messages"][-1]["content"])
        self.owner = owner
        self.faults = list(faults)  # names of Handler's fault_* functions, one drawn at random, "" for none
        self.delay = delay
        self.slots = threading.BoundedSemaphore(slots) if slots else None
        self.first = first  # of logprobs: [(token, logprob), ...]
        self.fields = fields    # of requests: others are refused
        self.context = context  # most words of a prompt: a longer one is refused
        self.counted = counted  # most words of a text that it counts: of a longer one it will not tell
        self.models = models  # instead of the list of them
        self.stopped = threading.Event()
        self.gone = False
        self.loading = 0      # answers to a wish for that list before there is one
        self.streams = streams  # else a whole answer is sent, whatever is asked for
        self.events_sent = events  # instead of an answer; bytes: the whole stream
        self.dice = random.Random(seed)
        self.lock = threading.Lock()
        self.requests = []
        self.headers = []
        self.events = []  # "asked" and "answers", as they happen
        self.connections = 0
        self.most_at_a_time = self.at_a_time = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def process_request(self, request, address):
        with self.lock:
            self.connections += 1
        super().process_request(request, address)

    def leave(self):
        """Connections are refused, and those that are open end, until come_back()."""
        self.gone = True
        self.shutdown()
        self.server_close()

    def come_back(self):
        self.socket = socket.socket(self.address_family, self.socket_type)
        self.server_bind()
        self.server_activate()
        self.gone = False
        self.__enter__()

    def handle_error(self, request, address):  # a client that goes away is none
        pass

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def whole(self, code, body, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, value):
        self.chunk(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    def delta(self, **delta):
        self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def do_GET(self):
        if self.server.loading:
            self.server.loading -= 1
            return self.whole(503, {"error": {"message": "Loading model"}})
        self.whole(200, self.server.models or {"object": "list", "data": [{"id": "tiny", "owned_by": self.server.owner, "max_model_len": 4096}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        if server.gone:
            self.close_connection = True
            return
        with server.lock:
            server.requests.append(body)
            server.events.append("asked")
            server.headers.append(dict(self.headers))
            server.at_a_time += 1
            server.most_at_a_time = max(server.most_at_a_time, server.at_a_time)
            fault = server.dice.choice(server.faults) if server.faults else ""
        unknown = set(body) - set(server.fields or body)
        if unknown:
            return self.whole(400, {"error": {"message": f"Extra inputs are not permitted: {sorted(unknown)}"}})
        try:
            if server.slots:
                server.slots.acquire()
            try:
                time.sleep(server.delay)
                (getattr(self, "fault_" + fault) if fault else self.good)(body)
            finally:
                if server.slots:
                    server.slots.release()
        finally:
            with server.lock:
                server.at_a_time -= 1

    @staticmethod
    def asked(body):
        texts = [message["content"] for message in body.get("messages", [])] + body.get("documents", [])
        return " ".join(texts + [body[key] for key in ("prompt", "input", "query") if key in body])

    def good(self, body, pieces=3, text=None):
        words = len(self.asked(body).split())
        if self.path == "/tokenize":
            if self.server.counted and words > self.server.counted:
                return self.whole(400, {"error": {"message": f"{words} words are too many to count"}})
            return self.whole(200, {"count": words, "max_model_len": 4096})
        if self.server.context and words > self.server.context:
            return self.whole(400, {"error": {"message": f"This model's maximum context length is {self.server.context} tokens. However, your request has {words} "
                                                         "input tokens. Please reduce the length of the input messages."}})
        if self.path.endswith("/rerank"):
            return self.whole(200, {"model": "tiny", "results": [{"index": 0, "relevance_score": 1 / len(body["documents"][0])}]})
        if "input" in body:
            return self.whole(200, {"data": [{"index": 0, "embedding": [float(len(body["input"])), 1.0]}], "usage": {"prompt_tokens": words}})
        if self.server.events_sent is not None:
            return self.told_events()
        text = text or self.server.answer(body)
        if isinstance(text, dict):
            return self.whole(text.pop("code"), text)
        with self.server.lock:
            self.server.events.append("answers")
        if not self.server.streams:
            return self.whole(200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                                    "usage": {"prompt_tokens": 12, "completion_tokens": 3}}, Content_Type="application/json")
        self.begin()
        self.delta(role="assistant", content="")
        size = max(1, (len(text) + pieces - 1) // pieces)
        for at in range(0, len(text), size):
            self.delta(content=text[at:at + size])
        choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
        if body.get("logprobs") and self.server.first is not None:
            top = [{"token": token, "logprob": logprob} for token, logprob in self.server.first]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        self.event({"choices": [choice]})
        self.event({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}})
        self.event(b"[DONE]")
        self.chunk(b"")

    def told_events(self):
        events = self.server.events_sent
        self.begin()
        if isinstance(events, bytes):
            for at in range(len(events)):  # byte by byte
                self.chunk(events[at:at + 1])
        else:
            for event in [*events, {"choices": [{"delta": {}, "finish_reason": "stop"}]}]:
                self.event(event)
        self.chunk(b"")

    def fault_unclean(self, body):
        """All of an answer, and a connection that does not end."""
        self.begin()
        self.delta(content=self.server.answer(body))
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.event(b"[DONE]")
        self.close_connection = True

    def fault_kept(self, body):
        """All of an answer, and a connection that is kept open."""
        self.fault_unclean(body)
        self.wfile.flush()
        self.server.stopped.wait(60)

    def fault_busy(self, body):
        self.whole(429, {"error": {"message": "slow down"}})

    def fault_busy_told(self, body):
        self.whole(503, {"error": "full"}, Retry_After="1")

    def fault_error(self, body):
        self.whole(500, b"<html>oops</html>")

    def fault_cut(self, body):
        self.begin()
        self.delta(content="half an ans")
        self.wfile.flush()
        self.close_connection = True

    def fault_gone(self, body):
        self.close_connection = True
        self.connection.close()

    def fault_unfinished(self, body):
        self.begin()
        self.delta(content="an answer without an end")
        self.chunk(b"")

    def fault_no_json(self, body):
        self.begin()
        self.event(b'{"choices": [{"delta": {"content": "x"')
        self.chunk(b"")

    def fault_no_utf8(self, body):
        self.begin()
        self.event(b'{"choices": [{"delta": {"content": "\xff\xfe"}}]}')
        self.chunk(b"")

    def fault_error_event(self, body):
        self.begin()
        self.event({"error": {"message": "out of memory"}})
        self.chunk(b"")

    def fault_redirect(self, body):
        self.whole(302, {"error": "elsewhere"}, Location="http://127.0.0.1:1/v1/chat/completions")

    def fault_slow_headers(self, body):
        for piece in (b"HTTP/1.1 200 OK\r\n", b"Content-Type: text/event-stream\r\nTransfer-Enc", b"oding: chunked\r\n\r\n"):
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(0.05)
        for event in ({"choices": [{"delta": {"content": self.server.answer(body)}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}):
            self.event(event)
        self.chunk(b"")

    def fault_hang(self, body):
        self.begin()
        self.delta(content="and then")
        time.sleep(60)

    def fault_endless(self, body):
        self.begin()
        while True:
            self.delta(content="and so on " * 6000)

    def fault_ignored(self, body):
        self.good(body, text="as I please")

    def fault_wrong_usage(self, body):
        self.begin()
        self.delta(content=self.server.answer(body))
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": -3, "completion_tokens": "many"}})
        self.chunk(b"")


class SilentHandler(Handler):
    """Takes what it is sent and says nothing."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(60)
