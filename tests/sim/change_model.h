#pragma once

#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/chunk/naming.h"
#include "tests/sim/model.h"

namespace stdchk::sim {

/// A ChangeModel knows what each name may show while several writers change it. It uses none of the
/// code under test.
///
/// A change is a function of the content. Each change under way counts as possible from begin() to
/// end(). A change whose answer was lost may still happen until its name is settled.
class ChangeModel {
 public:
  using Change = std::function<Content(const Content&)>;
  using Stamp = std::pair<std::uint64_t, std::uint32_t>;  ///< length and CRC32C
  struct Name {
    std::set<Content> possible{Content{}};
    std::set<Stamp> ever;  ///< every content that was ever possible
    std::list<Change> under_way;
    std::set<std::set<Content>*> watchers;  ///< candidate sets of readers that are opening the name
    /// processes that open the name to write; the open may create the file
    std::set<std::string> opening;
    Time settled{};  ///< after this time no request in flight changes the name
    int writers = 0;
    bool alone = false;   ///< no other writer may open it
    bool moving = false;  ///< no reader may begin
  };
  using Ticket = std::list<Change>::iterator;
  enum class Outcome { kDone, kNot, kMaybe };

  Name& name(const std::string& name) { return names_[name]; }
  std::map<std::string, Name>& names() { return names_; }

  static Stamp stamp(const std::vector<std::byte>& bytes) {
    return {bytes.size(), crc32c(0, bytes)};
  }
  static void remember(Name& name, const std::set<Content>& contents) {
    for (const Content& each : contents) {
      if (each.has_value()) name.ever.insert(stamp(*each));
    }
  }
  static std::set<Content> reachable(const Name& name) {
    std::set<Content> out = name.possible;
    for (std::size_t i = 0; i < name.under_way.size(); ++i) {
      for (const Change& change : name.under_way) {
        std::set<Content> next = out;
        for (const Content& each : out) next.insert(change(each));
        out = std::move(next);
      }
    }
    return out;
  }
  static Ticket begin(Name& name, Change change) {
    name.under_way.push_back(std::move(change));
    inform_watchers(name);
    return std::prev(name.under_way.end());
  }
  static void end(Name& name, Ticket ticket, Outcome outcome, Time settled) {
    // When several changes are under way, they may have happened in any order.
    if (name.under_way.size() > 1 && outcome != Outcome::kNot) remember(name, reachable(name));
    const Change change = std::move(*ticket);
    name.under_way.erase(ticket);
    if (outcome == Outcome::kNot) return;
    std::set<Content> next;
    if (outcome == Outcome::kMaybe) {
      next = name.possible;
      name.settled = settled;
    }
    for (const Content& each : name.possible) next.insert(change(each));
    name.possible = std::move(next);
    remember(name, name.possible);
    inform_watchers(name);
  }

 private:
  static void inform_watchers(Name& name) {
    if (name.watchers.empty()) return;
    const auto now = reachable(name);
    for (auto* watcher : name.watchers) watcher->insert(now.begin(), now.end());
  }
  std::map<std::string, Name> names_;
};

}  // namespace stdchk::sim
