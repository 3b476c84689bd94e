/* A server of OpenAI's chat API in a process of its own, which gives the same few answers for ever,
 * and a hub whose repository org/tiny has one model:
 *
 *   int port = StartCannedServer("m.gguf");   // -1: there is none
 *
 * It ends with the process that started it. Of the prompts with "again" in them every other one is
 * refused, or breaks off. Without a path there is no hub. */
#ifndef LM_TESTS_FAULT_CANNED_SERVER_H_
#define LM_TESTS_FAULT_CANNED_SERVER_H_

int StartCannedServer(const char* model);

#endif  // LM_TESTS_FAULT_CANNED_SERVER_H_
