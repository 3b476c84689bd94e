/* Eight threads that open one model, generate and close it, all at once: each gets the answers that
 * one alone gets. c_api_threads_test MODEL.gguf
 *
 * It is small to build and shows the engine's threads at work, for ThreadSanitizer too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/lm.h"

enum { kThreads = 8, kRounds = 4, kPrompts = 6, kForms = 4 };

static const char* const kSystem = "Name the section this package belongs to.";
/* How a prompt is answered; the third is never greedy. */
static const char* const kOptions[kForms] = {"{\"max_tokens\":12}",
                                             "{\"max_tokens\":8,\"thinking\":\"keep\"}",
                                             "{\"max_tokens\":10,\"temperature\":1,\"seed\":3}",
                                             "{\"choices\":[\"games\",\"libs\",\"admin\"]}"};
static const char* const kPromptTexts[kPrompts] = {"A game.",      "A library for games.",
                                                   "An editor.",   "A compiler, of libraries.",
                                                   "A tool, old.", ""};

static const char* model;
static char* expected[kForms][kPrompts];
static int failures[kThreads];

static void stop_on(lm_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s\n", lm_error_message(error));
  exit(1);
}

static lm_engine* open_engine(void) {
  lm_error* error = NULL;
  lm_engine* engine = lm_engine_open(model, "{\"threads\":2}", &error);
  stop_on(error);
  return engine;
}

static char* answer_to(lm_engine* engine, int form, int prompt) {
  lm_error* error = NULL;
  char* answer = lm_generate(engine, kPromptTexts[prompt], kSystem, kOptions[form], &error);
  stop_on(error);
  return answer;
}

/* Odd threads ask for all prompts together, even ones for one after the other. */
static void* run(void* number) {
  const int thread = *(const int*)number;
  int* failed = &failures[thread];
  for (int round = 0; round < kRounds; ++round) {
    lm_engine* engine = open_engine();
    const int form = (thread + round) % kForms;
    char* answers[kPrompts];
    if (thread % 2 == 1) {
      lm_error* error = NULL;
      lm_generate_batch(engine, kPromptTexts, kPrompts, kSystem, kOptions[form], answers, &error);
      stop_on(error);
    } else {
      for (int i = 0; i < kPrompts; ++i) answers[i] = answer_to(engine, form, i);
    }
    for (int i = 0; i < kPrompts; ++i) {
      if (strcmp(answers[i], expected[form][i]) != 0) {
        fprintf(stderr, "%s: wanted '%s', got '%s'\n", kOptions[form], expected[form][i],
                answers[i]);
        ++*failed;
      }
      lm_string_free(answers[i]);
    }
    lm_engine_close(engine);
  }
  return NULL;
}

static void refused(lm_engine* engine, const char* options, const char* why) {
  lm_error* error = NULL;
  char* answer = lm_generate(engine, "A game.", NULL, options, &error);
  if (answer != NULL || strstr(lm_error_message(error), why) == NULL) {
    fprintf(stderr, "%s: '%s'\n", options, lm_error_message(error));
    exit(1);
  }
  lm_error_free(error);
}

/* What is of statements is refused by name, and a NULL is no crash. */
static void check_refusals(lm_engine* engine) {
  refused(engine, "{\"model\":\"small\"}", "'model' is for SQL");
  refused(engine, "{\"max_total_tokens\":9}", "'max_total_tokens' is for SQL");
  refused(engine, "{\"max_seconds\":9}", "'max_seconds' is for SQL");
  refused(engine, "{\"max_cost\":9}", "'max_cost' is for SQL");
  refused(engine, "{\"on_error\":\"null\"}", "'on_error' is for SQL");
  refused(engine, "{\"cache\":false}", "'cache' is for SQL");
  refused(NULL, NULL, "engine must not be NULL");
  lm_error* error = NULL;
  char* answers[kPrompts];
  if (lm_generate_batch(NULL, kPromptTexts, kPrompts, NULL, NULL, answers, &error) != -1 ||
      lm_generate_batch(engine, NULL, kPrompts, NULL, NULL, answers, NULL) != -1 ||
      lm_generate_batch(engine, kPromptTexts, kPrompts, NULL, NULL, NULL, NULL) != -1 ||
      lm_generate_batch(engine, NULL, 0, NULL, "{\"nope\":1}", NULL, NULL) != -1 ||
      lm_generate_batch(engine, NULL, 0, NULL, NULL, NULL, NULL) != 0 ||
      lm_tokenize(engine, "x", NULL, 5, NULL) != -1 ||
      lm_tokenize(engine, "x", NULL, 0, NULL) < 1 || lm_tokenize(NULL, "x", NULL, 0, NULL) != -1 ||
      strcmp(lm_error_message(NULL), "") != 0) {
    fprintf(stderr, "NULL was taken\n");
    exit(1);
  }
  lm_error_free(error);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  model = argv[1];
  lm_engine* engine = open_engine();
  check_refusals(engine);
  for (int form = 0; form < kForms; ++form) {
    for (int i = 0; i < kPrompts; ++i) expected[form][i] = answer_to(engine, form, i);
  }
  lm_engine_close(engine); /* the threads load it anew */

  pthread_t threads[kThreads];
  int numbers[kThreads], failed = 0;
  for (int i = 0; i < kThreads; ++i) {
    numbers[i] = i;
    if (pthread_create(&threads[i], NULL, run, &numbers[i]) != 0) return 2;
  }
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    failed += failures[i];
  }
  for (int form = 0; form < kForms; ++form) {
    for (int i = 0; i < kPrompts; ++i) lm_string_free(expected[form][i]);
  }
  printf("%d wrong answers\n", failed);
  return failed == 0 ? 0 : 1;
}
