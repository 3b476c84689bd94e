// What the users of a model are told beside its answers.
#ifndef LM_EXTENSION_TABLES_MODEL_HINT_H_
#define LM_EXTENSION_TABLES_MODEL_HINT_H_

#include <string>

#include "engine/runtime/generator.h"
#include "extension/connection/connection.h"

namespace lm {

// What is wrong with the file of the memo; why no GPU is used though there is one; that the
// connection has asked a model which was made for one thing (engine/model/purpose.h) for something
// else. "" where there is nothing.
std::string ModelHint(Connection& connection, const Generator& generator);

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_MODEL_HINT_H_
