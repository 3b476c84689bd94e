#define _GNU_SOURCE
#include "canned_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int* again;    /* requests that are to be asked again; of all processes */
static const char* hub_file; /* or NULL */
static char hub_digest[65];
static long hub_bytes;

static bool SendAll(int peer, const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(peer, text, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    text += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool Answer(int peer, const char* status, const char* type, const char* body) {
  char text[4096];
  const int bytes = snprintf(text, sizeof text,
                             "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
                             status, type, strlen(body), body);
  return SendAll(peer, text, (size_t)bytes);
}

static bool Json(int peer, const char* body) {
  return Answer(peer, "200 OK", "application/json", body);
}

/* In one event, with what else the choice has. */
static bool Say(int peer, const char* text, const char* choice) {
  char body[2048];
  snprintf(
      body, sizeof body,
      "data: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}%s,\"finish_reason\":\"stop\"}],"
      "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
      text, choice);
  return Answer(peer, "200 OK", "text/event-stream", body);
}

/* The size and SHA-256 of the hub's file. */
static bool ReadHubFile(void) {
  char command[4200];
  snprintf(command, sizeof command, "sha256sum '%s'", hub_file);
  FILE* sum = popen(command, "r");
  const bool has_digest = sum != NULL && fscanf(sum, "%64s", hub_digest) == 1;
  struct stat info;
  if (sum == NULL || pclose(sum) != 0 || !has_digest || stat(hub_file, &info) != 0) return false;
  hub_bytes = (long)info.st_size;
  return true;
}

/* The file, from where the request wants it. */
static bool SendHubFile(int peer, const char* head) {
  static char bytes[1 << 16];
  const char* range = strcasestr(head, "\r\nRange: bytes=");
  const long begin = range != NULL ? atol(range + 15) : 0;
  char text[256];
  int used = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nETag: \"1\"\r\nContent-Length: %ld\r\n",
                      range != NULL ? "206 Partial Content" : "200 OK", hub_bytes - begin);
  if (range != NULL) {
    used += snprintf(text + used, sizeof text - used, "Content-Range: bytes %ld-%ld/%ld\r\n", begin,
                     hub_bytes - 1, hub_bytes);
  }
  snprintf(text + used, sizeof text - used, "\r\n");
  FILE* file = fopen(hub_file, "rb");
  bool good =
      file != NULL && fseek(file, begin, SEEK_SET) == 0 && SendAll(peer, text, strlen(text));
  for (size_t n; good && (n = fread(bytes, 1, sizeof bytes, file)) > 0;) {
    good = SendAll(peer, bytes, n);
  }
  if (file != NULL) fclose(file);
  return good;
}

static bool HandleHub(int peer, const char* head) {
  char text[400];
  if (strncmp(head, "GET /api/models/org/tiny/tree/main", 34) == 0) {
    snprintf(text, sizeof text,
             "[{\"type\":\"file\",\"path\":\"tiny-Q8_0.gguf\",\"oid\":\"0\",\"size\":%ld,"
             "\"lfs\":{\"oid\":\"%s\",\"size\":%ld,\"pointerSize\":134}}]",
             hub_bytes, hub_digest, hub_bytes);
    return Json(peer, text);
  }
  if (strncmp(head, "GET /org/tiny/resolve/main/", 27) != 0) return SendHubFile(peer, head);
  snprintf(text, sizeof text,
           "HTTP/1.1 302 Found\r\nLocation: /file\r\nX-Linked-Etag: \"%s\"\r\n"
           "X-Linked-Size: %ld\r\nContent-Length: 0\r\n\r\n",
           hub_digest, hub_bytes);
  return SendAll(peer, text, strlen(text));
}

/* False where the connection is to be closed. */
static bool Handle(int peer, const char* head, const char* body) {
  if (strstr(head, "org/tiny") != NULL || strncmp(head, "GET /file ", 10) == 0) {
    return hub_file != NULL && HandleHub(peer, head);
  }
  if (strncmp(head, "GET", 3) == 0) {
    return Json(peer,
                "{\"data\":[{\"id\":\"tiny\",\"owned_by\":\"vllm\",\"max_model_len\":4096}]}");
  }
  if (strstr(head, "/tokenize ") != NULL) return Json(peer, "{\"count\":3}");
  if (strstr(head, "/rerank ") != NULL)
    return Json(peer, "{\"results\":[{\"relevance_score\":0.5}]}");
  if (strstr(head, "/embeddings ") != NULL)
    return Json(peer, "{\"data\":[{\"embedding\":[1,2,3]}]}");
  if (strstr(body, "again") != NULL) {
    const int turn = atomic_fetch_add(again, 1) % 4;
    if (turn == 0) return Answer(peer, "429 Too Many Requests", "text/plain", "slow down");
    if (turn == 2) {
      static const char kHalf[] = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: {\"choi";
      SendAll(peer, kHalf, sizeof kHalf - 1);
      return false;
    }
  }
  if (strstr(body, "\"top_logprobs\"") != NULL) {
    return Say(peer, "Yes",
               ",\"logprobs\":{\"content\":[{\"token\":\"Yes\",\"logprob\":-0.25,\"top_logprobs\":["
               "{\"token\":\"Yes\",\"logprob\":-0.25},{\"token\":\"No\",\"logprob\":-1.5}]}]}");
  }
  if (strstr(body, "zqx7413") != NULL) return Say(peer, "zqx7413", "");
  if (strstr(body, "maybe") != NULL) return Say(peer, "wet", ""); /* asked once more */
  return Say(peer, strstr(body, "unsure") != NULL ? "maybe" : "wet", "");
}

static void Converse(int peer) {
  static char text[1 << 16];
  for (size_t used = 0;;) {
    char* end = NULL;
    size_t wanted = 0;
    for (;;) {
      text[used] = '\0';
      end = strstr(text, "\r\n\r\n");
      if (end != NULL) {
        const char* length = strcasestr(text, "\r\nContent-Length:");
        const size_t body = length != NULL && length < end ? strtoul(length + 17, NULL, 10) : 0;
        wanted = (size_t)(end + 4 - text) + body;
        if (used >= wanted) break;
      }
      const ssize_t n = recv(peer, text + used, sizeof text - 1 - used, 0);
      if (n <= 0) return;
      used += (size_t)n;
    }
    char last = text[wanted];
    text[wanted] = *end = '\0';
    if (!Handle(peer, text, end + 4)) return;
    text[wanted] = last;
    memmove(text, text + wanted, used -= wanted);
  }
}

int StartCannedServer(const char* model) {
  hub_file = model;
  if (model != NULL && !ReadHubFile()) return -1;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t bytes = sizeof address;
  again = mmap(NULL, sizeof *again, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (listener < 0 || again == MAP_FAILED ||
      bind(listener, (struct sockaddr*)&address, sizeof address) != 0 ||
      getsockname(listener, (struct sockaddr*)&address, &bytes) != 0 || listen(listener, 64) != 0) {
    return -1;
  }
  const pid_t server = fork();
  if (server < 0) return -1;
  if (server > 0) {
    close(listener);
    return ntohs(address.sin_port);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    const int peer = accept(listener, NULL, NULL);
    if (peer < 0 || fork() != 0) {
      close(peer);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(listener);
    const int on = 1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Converse(peer);
    _exit(0);
  }
}
