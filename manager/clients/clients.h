#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/clients/given_numbers.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// The last replies to one client. A repeated request gets the old answer
/// and is not executed again.
class RecentReplies {
 public:
  static constexpr std::size_t kReplies = 64;
  enum class Seen { kNew, kRunning, kAnswered };
  RecentReplies() = default;
  RecentReplies(const RecentReplies&) = delete;
  RecentReplies& operator=(const RecentReplies&) = delete;
  /// The client has ended: repeats that wait are answered kFenced, although their first call may
  /// still be executed.
  ~RecentReplies();
  /// kRunning keeps the responder, kAnswered has called it, kNew leaves it untouched.
  Seen begin(std::uint64_t call_id, rpc::Responder& respond);
  /// Answers the waiting repeats of this call, too.
  void finish(std::uint64_t call_id, const rpc::Answer& answer);

 private:
  struct Entry {
    bool answered = false;
    rpc::Answer answer;
    std::vector<rpc::Responder> waiting;
  };
  std::map<std::uint64_t, Entry> entries_;
  std::deque<std::uint64_t> order_;
};

struct ClientRecord {
  ClientId id;
  /// The client's number at an earlier manager, which it has proven; none: the client is new.
  ClientId before;
  std::string host_name;
  std::string host_token;
  std::string role;
  rpc::Peer* peer = nullptr;  ///< null while its link is lost
  Time last_heard{};
  std::set<std::pair<FileId, SessionId>> sessions;
  std::set<std::pair<FileId, Version>> pins;
  /// The number of files it has open for reading, as last reported.
  std::uint64_t reader_count = 0;
  std::shared_ptr<RecentReplies> replies = std::make_shared<RecentReplies>();
  GivenNumbers numbers;
  msg::Invalidate invalidate;  ///< sent at the end of the reactor's turn

  /// Returns true when that is the client's number, or was its number.
  bool was(ClientId number) const { return number && (number == id || number == before); }
  /// Returns true when the client has a session in which it writes the file.
  bool writes(FileId file) const {
    const auto found = sessions.lower_bound({file, SessionId{}});
    return found != sessions.end() && found->first == file;
  }
};
using Clients = std::map<ClientId, ClientRecord>;

}  // namespace stdchk::manager
