// RequestBody: a JSON body that is sent: ours, and over it what the model's option `extra` has.
#ifndef LM_ENGINE_REMOTE_REQUEST_BODY_H_
#define LM_ENGINE_REMOTE_REQUEST_BODY_H_

#include <string>
#include <utility>

#include "engine/base/json.h"

namespace lm {

class RequestBody {
 public:
  // REQUIRES: `extra`, an object, outlives it.
  explicit RequestBody(const Json& extra) : extra_(extra) {}

  void Add(std::string name, Json value) {
    if (!extra_.Has(name)) body_.Add(std::move(name), std::move(value));
  }
  // To be called once.
  std::string Dump() {
    for (const auto& [name, value] : extra_.members()) {
      if (!value.is_null()) body_.Add(name, value);
    }
    return body_.Dump();
  }

 private:
  const Json& extra_;
  Json body_ = Json::MakeObject();
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REQUEST_BODY_H_
