#pragma once

#include <capnp/message.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error_codes.h"
#include "core/base/limits.h"
#include "core/policy/policy.h"
#include "core/values/types.h"

namespace stdchk {

/// Every number is valid: a receiver keeps the settings that it does not know.
constexpr EnumRange<PolicyKey> range_of(PolicyKey) { return {PolicyKey{0}, PolicyKey{0xFFFF}}; }

}  // namespace stdchk

/// Functions for the generated codecs (*.encode.h, *.decode.h). Each converts one member of a plain
/// struct to or from Cap'n Proto's types. Only the codecs of messages and of the journal include
/// it.
namespace stdchk::schema {

/// A Check collects the first reason why a message cannot be encoded or is not valid.
struct Check {
  Code code{};
  bool ok() const { return code == Code{}; }
  void require(bool condition, Code otherwise) {
    if (!condition && ok()) code = otherwise;
  }
};

/// For `max`, where a schema has no limit.
inline constexpr std::size_t kNoLimit = SIZE_MAX;

// ---- numbers, flags, enumerations and ids ------------------------------------------------------

template <class T>
inline constexpr bool kIsId = false;
template <class Tag>
inline constexpr bool kIsId<Id<Tag>> = true;

template <class Wire, class T>
Wire to_wire(const T& value) {
  if constexpr (kIsId<T>) {
    return value.value;
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<Wire>(value);
  } else {
    static_assert(std::is_same_v<Wire, T>);
    return value;
  }
}

template <class Wire, class T>
void get_value(Check& check, Wire value, T& out) {
  if constexpr (kIsId<T>) {
    out.value = value;
  } else if constexpr (std::is_enum_v<T>) {
    const auto number = static_cast<std::uint16_t>(value);
    const EnumRange<T> valid = range_of(T{});
    check.require(number >= static_cast<std::uint16_t>(valid.first) &&
                      number <= static_cast<std::uint16_t>(valid.last),
                  Code::kMalformed);
    if (check.ok()) out = static_cast<T>(number);
  } else {
    static_assert(std::is_same_v<Wire, T>);
    out = value;
  }
}

// ---- texts and bytes ---------------------------------------------------------------------------

inline capnp::Data::Reader put_bytes(Check& check, const std::string& bytes, std::size_t max) {
  check.require(bytes.size() <= max, Code::kTooLarge);
  if (!check.ok()) return {};
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
/// Bytes without the byte 0: a name or a path.
inline capnp::Data::Reader put_path(Check& check, const std::string& path, std::size_t max) {
  check.require(path.find('\0') == std::string::npos, Code::kInvalidArgument);
  return put_bytes(check, path, max);
}
inline capnp::Text::Reader put_text(Check& check, const std::string& text, std::size_t max) {
  check.require(text.size() <= max, Code::kTooLarge);
  check.require(text.find('\0') == std::string::npos, Code::kInvalidArgument);
  if (!check.ok()) return {};
  return {text.data(), text.size()};
}

template <class Reader>
void get_bytes(Check& check, Reader bytes, std::string& out, std::size_t max) {
  check.require(bytes.size() <= max, Code::kMalformed);
  if (!check.ok() || bytes.size() == 0) return;
  out.assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}
template <class Reader>
void get_path(Check& check, Reader bytes, std::string& out, std::size_t max) {
  get_bytes(check, bytes, out, max);
  check.require(out.find('\0') == std::string::npos, Code::kMalformed);
}

// ---- lists -------------------------------------------------------------------------------------

template <class T>
concept Plain = kIsId<T> || std::is_arithmetic_v<T>;

/// `init` makes the list of so many items; `item_max`: bytes of each item that is a text.
template <class T, class Init>
void put_list(Check& check, const std::vector<T>& items, Init init, std::size_t max,
              std::size_t item_max = 0) {
  check.require(items.size() <= max, Code::kTooLarge);
  if (!check.ok()) return;
  auto list = init(static_cast<unsigned>(items.size()));
  for (unsigned i = 0; i < list.size() && check.ok(); ++i) {
    if constexpr (kIsId<T>) {
      list.set(i, items[i].value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      list.set(i, items[i]);
    } else if constexpr (std::is_same_v<T, std::string>) {
      list.set(i, put_text(check, items[i], item_max));
    } else {
      put(check, list[i], items[i]);
    }
  }
}

template <class List, class T>
void get_list(Check& check, List list, std::vector<T>& items, std::size_t max,
              std::size_t item_max = 0) {
  check.require(list.size() <= max, Code::kMalformed);
  if (!check.ok()) return;
  items.resize(list.size());
  for (unsigned i = 0; i < list.size() && check.ok(); ++i) {
    if constexpr (Plain<T>) {
      get_value(check, list[i], items[i]);
    } else if constexpr (std::is_same_v<T, std::string>) {
      get_path(check, list[i], items[i], item_max);
    } else {
      get(check, list[i], items[i]);
    }
  }
}

// ---- a chunk's name as four words --------------------------------------------------------------

inline std::uint64_t load_word(const ChunkName& name, std::size_t index) {
  std::uint64_t word = 0;
  for (std::size_t i = 8; i-- > 0;) {
    word = word << 8 | std::to_integer<std::uint64_t>(name.bytes[index * 8 + i]);
  }
  return word;
}
inline void store_word(ChunkName& name, std::size_t index, std::uint64_t word) {
  for (std::size_t i = 0; i < 8; ++i) {
    name.bytes[index * 8 + i] = static_cast<std::byte>(word >> (8 * i) & 0xFF);
  }
}
template <class Builder>
void put(Check&, Builder to, const ChunkName& name) {
  to.setWord0(load_word(name, 0));
  to.setWord1(load_word(name, 1));
  to.setWord2(load_word(name, 2));
  to.setWord3(load_word(name, 3));
}
template <class Reader>
void get(Check&, Reader from, ChunkName& name) {
  store_word(name, 0, from.getWord0());
  store_word(name, 1, from.getWord1());
  store_word(name, 2, from.getWord2());
  store_word(name, 3, from.getWord3());
}

}  // namespace stdchk::schema
