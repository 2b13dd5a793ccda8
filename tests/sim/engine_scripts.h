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

/// After a lost answer a request can be on its way that long.
inline constexpr Duration kSettle = std::chrono::seconds(45);

/// Until the manager knows that a benefactor is lost: one that has come back hears anew.
inline constexpr Duration kNoticed = std::chrono::seconds(20);

struct ScriptTally {
  std::uint64_t opens = 0, writes = 0, reads = 0, truncates = 0, syncs = 0, commits = 0,
                commits_failed = 0, aborts = 0, renames = 0, unlinks = 0, loads = 0,
                loads_failed = 0, errors = 0, redundant = 0, redundant_failed = 0;
};

/// What scripts share.
struct Scene {
  Cluster& cluster;
  Prng& prng;
  ChangeModel& model;
  std::function<void(const std::string&)> complain;
  /// Something happened: part of the run's trace.
  std::function<void(std::uint64_t)> note;
  bool faults = false;
  bool deaths = false;  ///< benefactors die: bytes can be lost
  /// A copy was wrong at that time, or later.
  std::function<bool(Time)> rotten_since;
  /// Something of that file was lost, or could not be reached, at that time or later.
  std::function<bool(FileId, Time)> lost_since;
  /// At most one benefactor has ended since then, and nothing else was out of reach.
  std::function<bool(Time)> one_lost_since;
  bool redundant = false;  ///< processes close as with CloseMode::kRedundant
  /// Sessions outlast the loss of a benefactor, and no two chunks are equal.
  bool long_writers = false;
  Time lost_last{};  ///< when copies were lost, or could be taken for lost
  ScriptTally tally;
};

/// A Script is what one application does with one file.
class Script {
 public:
  virtual ~Script() = default;
  virtual void start() = 0;
  /// Its process has died.
  virtual void killed() = 0;
  bool ended() const { return ended_; }
  EngineNode& node() { return node_; }
  const std::string& what() const { return name_; }

 protected:
  Script(Scene& scene, EngineNode& node, std::string name)
      : scene_(scene), node_(node), name_(std::move(name)), began_(scene.cluster.now()) {}
  /// An error that may be, given the faults.
  void accept(const Error& why, const char* what);

  Scene& scene_;
  EngineNode& node_;
  std::string name_;
  const Time began_;
  bool ended_ = false;
};

/// A WriterScript opens a file, writes, reads back, cuts, commits, renames and removes it, and
/// closes it in one of the ways there are. With `half` it writes only every second block, so that
/// another one can write the others at the same time.
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
  std::vector<std::byte> view_;  ///< what this opener sees (without `half`)
  std::vector<Part> parts_;      ///< since the last commit (with `half`)
  bool unlinked_ = false;
  bool exists_ = false;   ///< was committed at least once
  bool created_ = false;  ///< by this session, and not committed
  int steps_ = 0;
  struct Change {
    ChangeModel::Name* name = nullptr;
    ChangeModel::Ticket ticket;
  };
  std::vector<Change> changes_;  ///< under way
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
  bool resolves_ = false;  ///< what it sees decides what the name holds
  std::set<Content> allowed_;
  bool watching_ = false;
  FileId id_;
  std::shared_ptr<client::OpenFile> file_;
  std::vector<std::byte> bytes_;
  std::size_t got_ = 0;
};

}  // namespace stdchk::sim
