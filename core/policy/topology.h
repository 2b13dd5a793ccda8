#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/problem.h"

namespace stdchk {

/// A Topology says which hosts fail together: those on one node, in one rack, behind one switch. A
/// file describes it with a line for each host:
///
///     NAME [node=N] [rack=R] [switch=S]     # the rest of a line is a comment
///
/// NAME is the host's own name, or its part before the first dot. Hosts without a rack share one,
/// and so do hosts without a switch. Each host without a node counts as its own node.
class Topology {
 public:
  struct Place {
    std::string node;
    std::string rack;
    std::string switch_name;
    bool operator==(const Place&) const = default;
  };

  /// The error text names the line and what is allowed.
  static Outcome<Topology> parse(std::string_view text);
  static Outcome<Topology> read(const std::string& path);

  /// Returns nullptr when the host is not listed.
  const Place* find(std::string_view host_name) const;
  bool empty() const { return places_.empty(); }

 private:
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace stdchk
