#pragma once

#include <concepts>
#include <variant>

namespace stdchk {

template <class T, class Variant>
inline constexpr bool kIsAlternative = false;
template <class T, class... Types>
inline constexpr bool kIsAlternative<T, std::variant<Types...>> = (std::same_as<T, Types> || ...);

/// A OneOf is a variant of so many types that the code that makes, copies, moves and ends one is
/// compiled once instead of in every file that passes one on: that is most of what such files take
/// to compile. One source file includes core/one_of_instance.h and instantiates it.
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
  requires kIsAlternative<T, Variant> OneOf(T value);  ///< implicit, as of a variant
};

}  // namespace stdchk
