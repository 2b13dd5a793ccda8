#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// The content that a name may show: bytes, or nothing when no such file exists.
using Content = std::optional<std::vector<std::byte>>;

/// A Model knows what each name may show. It uses none of the code under test.
///
/// A change whose answer was lost leaves two possible contents; the next read decides. Such a name
/// is left alone until the request can no longer be in flight.
class Model {
 public:
  struct Name {
    std::set<Content> possible{Content{}};
    std::set<Content> ever{Content{}};  ///< every content that was ever possible
    Time settled{};                     ///< after this time no request in flight changes the name
    bool busy = false;                  ///< an operation of the workload uses it
  };

  Name& name(const std::string& name) { return names_[name]; }
  std::map<std::string, Name>& names() { return names_; }

  static std::set<Content> written(const Name& name, const std::vector<Part>& parts,
                                   bool truncate) {
    std::set<Content> out;
    for (const Content& before : name.possible) {
      std::vector<std::byte> bytes;
      if (before.has_value() && !truncate) bytes = *before;
      for (const Part& part : parts) {
        if (bytes.size() < part.offset + part.bytes.size()) {
          bytes.resize(part.offset + part.bytes.size());
        }
        std::copy(part.bytes.begin(), part.bytes.end(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(part.offset));
      }
      out.insert(std::move(bytes));
    }
    return out;
  }

  /// Records the result of a change to one of the contents `after`.
  static void changed(Name& name, const std::set<Content>& after, const Ending& ending,
                      Time settled) {
    if (ending.status.has_value() || ending.maybe) name.ever.insert(after.begin(), after.end());
    if (ending.status.has_value()) {
      name.possible = after;
    } else if (ending.maybe) {
      name.possible.insert(after.begin(), after.end());
      name.settled = settled;
    }
  }

 private:
  std::map<std::string, Name> names_;
};

}  // namespace stdchk::sim
