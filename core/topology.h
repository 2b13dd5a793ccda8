#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace stdchk {

/// A Topology says which hosts fail together: those on one node, in one rack, behind one switch. It
/// comes from a file with a line for each host:
///
///     NAME [node=N] [rack=R] [switch=S]     # the rest of a line is a comment
///
/// NAME is what the host calls itself, or that up to the first dot. Hosts that are not listed, or
/// for which a level is not stated, are together on that level, but each its own node.
class Topology {
 public:
  struct Place {
    std::string node;
    std::string rack;
    std::string switch_name;
    bool operator==(const Place&) const = default;
  };

  /// The problem names the line and what is allowed.
  static tl::expected<Topology, std::string> parse(std::string_view text);
  static tl::expected<Topology, std::string> read(const std::string& path);

  /// nullptr: not listed.
  const Place* find(std::string_view host_name) const;
  bool empty() const { return places_.empty(); }

 private:
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace stdchk
