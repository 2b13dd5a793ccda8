#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/problem.h"

namespace stdchk {

/// Reads an integer. The library's own get() casts: 1.5 becomes 1, and 2^32 becomes 0 in 32 bits.
/// The cast of a large double is undefined.
/// Errors: throws std::out_of_range, beside nlohmann-json's own exceptions, as the library does. For
/// use within read_json().
template <std::integral T>
T integer_of(const nlohmann::json& json) {
  if (json.is_number_unsigned()) {
    if (const auto n = json.get<std::uint64_t>(); std::in_range<T>(n)) return static_cast<T>(n);
  } else if (json.is_number_integer()) {
    if (const auto n = json.get<std::int64_t>(); std::in_range<T>(n)) return static_cast<T>(n);
  }
  throw std::out_of_range(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                          " is not a number of the right size");
}

/// Reads the field `name` into `out`. Errors: as integer_of(); an absent field throws, too.
template <class T>
void read_field(const nlohmann::json& json, const char* name, T& out) {
  const nlohmann::json& field = json.at(name);
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    try {
      out = integer_of<T>(field);
    } catch (const std::out_of_range& error) {
      throw std::out_of_range(std::string("the field ") + name + ": " + error.what());
    }
  } else {
    field.get_to(out);
  }
}

/// The adapter for the exceptions of nlohmann-json and of the functions above: calls `read`, which
/// may throw them. Returns a Problem with the exception's text in place of an exception.
template <class Read>
auto read_json(Read read) -> Outcome<decltype(read())> {
  try {
    return read();
  } catch (const std::exception& error) {
    return problem(std::string(error.what()));
  }
}

}  // namespace stdchk
