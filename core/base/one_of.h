#pragma once

#include <concepts>
#include <variant>

namespace stdchk {

template <class T, class Variant>
inline constexpr bool kIsAlternative = false;
template <class T, class... Types>
inline constexpr bool kIsAlternative<T, std::variant<Types...>> = (std::same_as<T, Types> || ...);

/// A OneOf is a variant of very many types. The code that creates, copies, moves and destroys it is
/// compiled once, instead of in every file that passes one on. That code would dominate the compile
/// time of such files. A single source file includes core/base/one_of_instance.h and instantiates
/// it.
template <class Variant>
class OneOf : public Variant {
 public:
  using Alternatives = Variant;

  OneOf();
  OneOf(const OneOf& other);
  OneOf(OneOf&& other) noexcept;
  OneOf& operator=(const OneOf& other);
  OneOf& operator=(OneOf&& other) noexcept;
  ~OneOf();
  template <class T>
  requires kIsAlternative<T, Variant> OneOf(T value);  ///< implicit, as with std::variant
};

}  // namespace stdchk
