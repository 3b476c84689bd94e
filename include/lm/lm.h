/* sqlite-lm's engine as a C library.
 *
 *   lm_error* error = NULL;
 *   lm_engine* engine = lm_engine_open("model.gguf", NULL, &error);
 *   char* answer = engine ? lm_generate(engine, "Hello", NULL, NULL, &error) : NULL;
 *   if (error) fprintf(stderr, "%s\n", lm_error_message(error));
 *   lm_string_free(answer);
 *   lm_error_free(error);
 *   lm_engine_close(engine);
 *
 * Conventions
 * - Strings are NUL-terminated UTF-8. A char* that is returned belongs to the caller, who frees it
 *   by lm_string_free.
 * - Functions that can fail take an lm_error** last, which may be NULL. On failure they return NULL
 *   (or a negative number) and set *error to a new error for lm_error_free; on success they leave
 *   *error alone.
 * - `options` is a JSON object or NULL; an unknown key is an error. For lm_engine_open: device,
 *   threads, kv_bytes, kv_type, context_length, lora, draft, mtp, pack_cache, prefix_store,
 *   prefix_store_bytes, pooling, chat_template, thinking_marks. For generation: max_tokens,
 *   temperature, top_k, top_p, min_p, seed, repeat_penalty, logit_bias, stop, choices, regex,
 *   schema, grammar, json_spaces, additional, strict_schema, n, vote, best_of, lora, messages,
 *   examples (an array), thinking, thinking_tokens, template_args, on_overflow, on_length,
 *   timeout_ms, priority, speculate (sql/guide/options.md says what each does). Options that exist
 *   only in SQL are refused: model, max_total_tokens, max_seconds, max_cost, on_error, cache.
 * - NULL for the engine, or for an array that is not empty, is an error.
 * - An lm_engine may be used from several threads at once; their generations run as one batch.
 *   Opening one file twice gives two handles to one loaded model.
 */
#ifndef LM_LM_H_
#define LM_LM_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LM_API __attribute__((visibility("default")))
#else
#define LM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lm_engine lm_engine;
typedef struct lm_error lm_error;

/* "0.1.0". Static storage. */
LM_API const char* lm_version(void);

/* Loads a GGUF model, or takes the one already loaded from that file. */
LM_API lm_engine* lm_engine_open(const char* path, const char* options, lm_error** error);
/* Drops the handle; the last one stops the engine and frees the weights. NULL is allowed. */
LM_API void lm_engine_close(lm_engine* engine);

/* The answer to `prompt` under the system prompt `system` (NULL: none). Blocks. */
LM_API char* lm_generate(lm_engine* engine, const char* prompt, const char* system,
                         const char* options, lm_error** error);

/* Several prompts under one system prompt, decoded together. answers[i] is set for each prompt that
 * succeeded, and NULL for one that failed. Returns how many failed, and *error is the first one's;
 * -1 where the call itself failed (its options, say) and no prompt was answered. Some thousands are
 * under way at once; it waits where the engine's queue is full, unless nothing of its own is in it. */
LM_API int lm_generate_batch(lm_engine* engine, const char* const* prompts, size_t num_prompts,
                             const char* system, const char* options, char** answers,
                             lm_error** error);

/* Tokens of a plain text, as the model would be fed (BOS where it adds one). Returns their number
 * and writes the first `capacity` of them to `tokens` (which may be NULL if capacity is 0); -1 on
 * failure. */
LM_API int64_t lm_tokenize(lm_engine* engine, const char* text, int32_t* tokens, size_t capacity,
                           lm_error** error);

/* Of NULL: "". */
LM_API const char* lm_error_message(const lm_error* error);
LM_API void lm_error_free(lm_error* error);
LM_API void lm_string_free(char* string);

#ifdef __cplusplus
}
#endif

#endif /* LM_LM_H_ */
