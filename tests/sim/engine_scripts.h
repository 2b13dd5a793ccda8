#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/change_model.h"
#include "tests/sim/engine_node.h"

namespace stdchk::sim {

/// The longest time for which a request may stay in flight after its answer was lost.
inline constexpr Duration kSettle = std::chrono::seconds(45);

/// The time within which the manager notices that a benefactor is lost. A restarted manager begins
/// counting anew.
inline constexpr Duration kNoticed = std::chrono::seconds(20);

/// Whether an error leaves the change's execution unknown.
bool is_maybe(Code code);

struct ScriptTally {
  std::uint64_t opens = 0, writes = 0, reads = 0, truncates = 0, syncs = 0, commits = 0,
                commits_failed = 0, aborts = 0, renames = 0, unlinks = 0, loads = 0,
                loads_failed = 0, errors = 0, redundant = 0, redundant_failed = 0;
};

/// The state that all scripts of a run share.
struct Scene {
  Cluster& cluster;
  Prng& prng;
  ChangeModel& model;
  std::function<void(const std::string&)> complain;
  /// Records an event in the run's trace.
  std::function<void(std::uint64_t)> note;
  bool faults = false;
  bool deaths = false;  ///< benefactors may die: bytes can be lost
  /// Whether any copy was corrupt at that time or later.
  std::function<bool(Time)> rotten_since;
  /// Whether bytes of that file were lost or unreachable at that time or later.
  std::function<bool(FileId, Time)> lost_since;
  /// Whether at most one benefactor ended after that time, and everything else stayed reachable.
  std::function<bool(Time)> one_lost_since;
  bool redundant = false;  ///< processes close files with CloseMode::kRedundant
  /// Sessions outlast the loss of a benefactor, and all chunks differ.
  bool long_writers = false;
  Time lost_last{};  ///< last time at which copies were lost or seemed lost
  ScriptTally tally;
};

/// A Script performs what one application does with one file.
class Script {
 public:
  virtual ~Script() = default;
  virtual void start() = 0;
  /// The script's process has died.
  virtual void killed() = 0;
  bool ended() const { return ended_; }
  EngineNode& node() { return node_; }
  const std::string& what() const { return name_; }

 protected:
  Script(Scene& scene, EngineNode& node, std::string name)
      : scene_(scene), node_(node), name_(std::move(name)), began_(scene.cluster.now()) {}
  /// Complains unless the injected faults explain this error.
  void accept(const Error& why, const char* what);
  /// The same for a read. A read of evicted bytes waits for all earlier changes of names in the
  /// drain directory.
  void accept_read(const Error& why, const char* what);

  Scene& scene_;
  EngineNode& node_;
  std::string name_;
  const Time began_;
  bool ended_ = false;
};

/// A WriterScript opens a file, writes, reads back, cuts, commits, renames and removes it, and
/// closes it in one of several ways. With `half` it writes only every second block; another writer
/// may write the others at the same time.
class WriterScript final : public Script, public std::enable_shared_from_this<WriterScript> {
 public:
  WriterScript(Scene& scene, EngineNode& node, std::string name, std::optional<unsigned> half);
  void start() override;
  void killed() override;

 private:
  void opened(Status status);
  void next();
  void pause(std::chrono::milliseconds most);
  void write();
  void append();
  void truncate();
  void read_back();
  void sync();
  void commit(bool end, bool early);
  void committed(const Status& status, bool end, bool early);
  void accept_loss(const Error& why);
  void wait_redundant(bool end);
  struct Debt;
  void ask_debt(std::shared_ptr<Debt> debt);
  void redundant(const Debt& debt, const Status& status);
  void rename();
  void remove();
  void fail_with(const Error& why, const char* what);
  void abort();
  void leave();
  void finish();
  ChangeModel::Name& entry() { return scene_.model.name(name_); }
  bool exact() const { return !half_.has_value(); }
  std::vector<std::byte> make_bytes(std::size_t length);

  const std::optional<unsigned> half_;
  bool truncate_ = false;
  std::shared_ptr<client::OpenFile> file_;
  std::vector<std::byte> view_;  ///< the content that this process sees (without `half`)
  std::vector<Part> parts_;      ///< blocks written since the last commit (with `half`)
  bool unlinked_ = false;
  bool exists_ = false;   ///< was committed at least once
  bool created_ = false;  ///< created by this session and not yet committed
  int steps_ = 0;
  struct Change {
    ChangeModel::Name* name = nullptr;
    ChangeModel::Ticket ticket;
  };
  std::vector<Change> changes_;  ///< changes under way
  std::string moving_to_;
};

/// A ReaderScript opens the newest version of a file and reads all of it, slowly.
class ReaderScript final : public Script, public std::enable_shared_from_this<ReaderScript> {
 public:
  ReaderScript(Scene& scene, EngineNode& node, std::string name, bool must_succeed);
  ~ReaderScript() override;
  void start() override;
  void killed() override;

 private:
  void looked_up(rpc::Answer answer);
  void opened(const Status& status);
  void read_on();
  void finish(std::optional<Content> seen);
  void stop_watching();

  const bool must_succeed_;
  bool resolves_ = false;  ///< the content read becomes the model's only possible content
  std::set<Content> allowed_;
  bool watching_ = false;
  FileId id_;
  std::shared_ptr<client::OpenFile> file_;
  std::vector<std::byte> bytes_;
  std::size_t got_ = 0;
};

}  // namespace stdchk::sim
