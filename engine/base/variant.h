// Variant: a std::variant whose copies survive an allocation that fails (hash_map.h).
//
//   using Cell = Variant<std::monostate, int64_t, std::string>;    // then as std::variant
//
// libstdc++ takes a variant of strings, vectors and plain values for one that is never without a
// value. Its copy constructor is without one until the alternative's own has ended; where that
// throws, what was never made is destroyed (seen with gcc 12).
#ifndef LM_ENGINE_BASE_VARIANT_H_
#define LM_ENGINE_BASE_VARIANT_H_

#include <type_traits>
#include <utility>
#include <variant>

namespace lm {

template <typename... Types>
class Variant : public std::variant<Types...> {
  using Base = std::variant<Types...>;

 public:
  using Base::Base;
  using Base::operator=;

  Variant() = default;
  // Where an alternative's copy throws, it is the first alternative that is destroyed.
  Variant(const Variant& other) : Base() {
    std::visit(
        [this](const auto& value) {
          this->template emplace<std::remove_cvref_t<decltype(value)>>(value);
        },
        static_cast<const Base&>(other));
  }
  Variant(Variant&&) = default;
  Variant& operator=(const Variant& other) { return *this = Variant(other); }
  Variant& operator=(Variant&&) = default;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_VARIANT_H_
