"""A server of OpenAI's Batch API for tests, beside its chat API: files, batches, and processes that die in between.

    with BatchServer(answer=lambda body: "yes") as server:
        server.files, server.batches      # by id
        server.hold = True                # batches go on when this is False again
        server.kill_at = (3, pid, "done") # the third request from now on: see BatchHandler.step
"""
import email
import email.policy
import json
import os
import random
import signal
import threading
import time
import urllib.parse

from chat_server import ChatServer, Handler


def completion(text, finish="stop"):
    return {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3}}


def answer_line(line, answer):
    """The output line of a request's line; answer(body) is a text, or an error as a dict."""
    request = json.loads(line)
    said = answer(request["body"])
    result = {"id": "batch_req_1", "custom_id": request["custom_id"], "response": None, "error": None}
    if isinstance(said, dict) and "status_code" in said:
        result["response"] = said
    elif isinstance(said, dict):
        result["error"] = said
    else:
        result["response"] = {"status_code": 200, "request_id": "r", "body": completion(said)}
    return json.dumps(result, ensure_ascii=False)


class BatchServer(ChatServer):
    def __init__(self, **how):
        super().__init__(handler=BatchHandler, **how)
        self.files, self.batches = {}, {}  # None: one that is kept no more
        self.hold = False
        self.refuses = {}  # "upload" or "create": with this code
        self.kill_at = None
        self.steps = 0
        self.cuts = 0  # of downloads: so many break off half-way
        self.rests_until, self.rest = 0, 1  # of time.monotonic(); whoever comes before is to come back in so many seconds
        self.while_asked = lambda: None  # called while somebody asks for a batch
        self.state_lock = threading.Lock()

    def finish(self, batch):
        lines = self.files[batch["input_file_id"]]["data"].decode().splitlines()
        answers = [answer_line(line, self.answer) for line in lines]
        self.dice.shuffle(answers)
        good = [line for line in answers if json.loads(line)["error"] is None]
        bad = [line for line in answers if json.loads(line)["error"] is not None]
        for name, some in (("output_file_id", good), ("error_file_id", bad)):
            batch[name] = self.keep("out", "".join(line + "\n" for line in some).encode())["id"] if some else None
        batch["status"] = "completed"
        batch["request_counts"] = {"total": len(lines), "completed": len(good), "failed": len(bad)}

    def keep(self, filename, data):
        number = f"file-{len(self.files) + 1}"
        self.files[number] = {"id": number, "object": "file", "filename": filename, "bytes": len(data), "data": data}
        return self.files[number]


class BatchHandler(Handler):
    def step(self):
        """Whether the request is to be answered: its sender may be killed before it arrives ('lost'), when all is done but the answer
        ('done'), or with the answer on its way ('answered')."""
        server = self.server
        with server.state_lock:
            server.steps += 1
            if server.kill_at and server.steps == server.kill_at[0]:
                return server.kill_at
        return None

    def reply(self, work):
        kill = self.step()
        if kill and kill[2] == "lost":
            os.kill(kill[1](), signal.SIGKILL)
            self.close_connection = True
            return
        with self.server.state_lock:
            code, body = work()
        if kill and kill[2] == "done":
            os.kill(kill[1](), signal.SIGKILL)
            self.close_connection = True
            return
        self.whole(code, body)
        if kill:
            os.kill(kill[1](), signal.SIGKILL)

    def do_POST(self):
        path = urllib.parse.urlparse(self.path).path
        if path not in ("/v1/files", "/v1/batches"):
            return super().do_POST()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers.append(dict(self.headers))
        self.reply(lambda: self.take("upload", self.upload, data) if path == "/v1/files" else self.take("create", self.create, json.loads(data)))

    def take(self, what, how, data):
        code = self.server.refuses.get(what)
        return how(data) if code is None else (code, {"error": {"message": "not here"}})

    def upload(self, data):
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = {part.get_param("name", header="content-disposition"): part for part in
                 email.message_from_bytes(head + data, policy=email.policy.HTTP).iter_parts()}
        if parts["purpose"].get_content().strip() != "batch":
            return 400, {"error": {"message": "purpose?"}}
        kept = self.server.keep(parts["file"].get_filename(), parts["file"].get_payload(decode=True))
        return 200, {key: value for key, value in kept.items() if key != "data"}

    def create(self, body):
        server = self.server
        if body["input_file_id"] not in server.files or body["endpoint"] != "/v1/chat/completions" or body["completion_window"] != "24h":
            return 400, {"error": {"message": "no such file"}}
        number = f"batch_{len(server.batches) + 1}"
        server.batches[number] = {"id": number, "object": "batch", "status": "validating", "output_file_id": None, "error_file_id": None, **body}
        return 200, server.batches[number]

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = url.path.split("/")[2:]
        if parts[0] not in ("files", "batches"):
            return super().do_GET()
        if time.monotonic() < self.server.rests_until:
            return self.whole(429, {"error": {"message": "slow down"}}, Retry_After=str(self.server.rest))
        if len(parts) == 1:
            return self.reply(lambda: self.page(parts[0], query))
        if parts[0] == "batches":
            return self.reply(lambda: self.batch(parts[1]))
        if self.server.cuts > 0:
            self.server.cuts -= 1
            data = self.server.files[parts[1]]["data"]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:len(data) // 2])
            self.close_connection = True
            return
        self.reply(lambda: self.content(parts[1]))

    def content(self, number):
        file = self.server.files.get(number)
        return (200, file["data"]) if file else (404, {"error": {"message": "no such file"}})

    def page(self, which, query):
        """Two entries a page, the newest first."""
        every = [entry for entry in reversed(getattr(self.server, which).values()) if entry]
        if "after" in query:
            every = every[[entry["id"] for entry in every].index(query["after"]) + 1:]
        shown = [{key: value for key, value in entry.items() if key != "data"} for entry in every[:2]]
        return 200, {"object": "list", "data": shown, "has_more": len(every) > 2}

    def batch(self, number):
        batch = self.server.batches.get(number)
        if batch is None:
            return 404, {"error": {"message": "no such batch"}}
        self.server.while_asked()
        if not self.server.hold and batch["status"] in ("validating", "in_progress"):
            self.server.finish(batch)
        return 200, batch
