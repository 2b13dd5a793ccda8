#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/names/leased_calls.h"
#include "tests/sim/engine_scripts.h"

namespace stdchk::sim {

/// A HeldFolderScript has processes change the names of one folder, which the client library then holds
/// (docs/decisions/0075). A process changes many names in a row; now and then another process looks.
/// Operations follow each other. Each operation may wait for a recall, a death or a restart.
///
/// The model knows what applications were told. All processes see exactly these names (N1). After the loss
/// of a lease, the holder's last changes may be missing. Then the names are those of an earlier moment
/// since the newest sync (N4). The old holder hears of its loss before any other answer.
///
/// Owns: its model. Threads: one.
class HeldFolderScript {
 public:
  using Processes = std::vector<std::unique_ptr<EngineNode>>;

  HeldFolderScript(Scene& scene, std::uint64_t seed) : scene_(scene), prng_(seed) {}

  /// Begins operations, if none is under way.
  void start_one(const Processes& processes);
  /// The process will die.
  void killed(const EngineNode& node);
  bool idle() const { return busy_ == nullptr; }
  /// Lists the folder, and removes all names.
  void remove_all(EngineNode& node);
  std::uint64_t operations() const { return operations_; }
  /// The changes that a holder has answered.
  std::uint64_t changes_here() const { return changes_here_; }

 private:
  struct Entry {
    FileId file;  ///< none: unknown
    FileType type = FileType::kRegular;
  };
  using Names = std::map<std::string, Entry>;
  /// Makes a change, if the names allow it.
  using Change = std::function<bool(Names&)>;
  /// A process with the library, and how often it had lost its leases.
  struct Holder {
    EngineNode* node = nullptr;
    std::uint64_t losses = 0;
  };
  template <class T>
  using Step = std::function<Result<T>(client::LeasedCalls&, client::LeasedCalls::Turn&)>;

  template <class T>
  void call(const char* what, Step<std::optional<T>> step, std::function<void(const T&)> here,
            msg::Request request, std::function<void(const rpc::Answer&)> asked);
  template <class T>
  void make_change(const char* what, Change change, Step<std::optional<T>> step,
                   msg::Request request);
  void begin(EngineNode& node, int operations);
  void next();
  void end() { busy_ = nullptr; }
  void make_folder();
  void draw();
  void add(const std::string& name, FileType type);
  void create(const std::string& name);
  void remove(const std::string& name);
  void rename(const std::string& from, const std::string& to);
  void look_up(const std::string& name);
  void list();
  void sync();
  void finish_open();
  void wait_for_session(const std::string& name, std::shared_ptr<client::Engine::Opening> opening);
  void commit(const std::string& name, client::SessionPtr session);
  void drop_open();

  void done(const Change& change, bool here);
  void maybe_done(const Change& change);
  void ended(const Change& change, const Status& status, const char* what);
  void failed(const Error& why, const char* what);
  void check_told();
  void seen(const std::function<bool(const Names&)>& fits, bool here, const char* what);
  void listed(const std::vector<msg::DirectoryEntry>& entries, bool here);
  bool has_lost() const;
  /// Returns true for names whose presence is unknown.
  bool is_open(const std::string& name) const {
    return open_name_ == name && (open_ != nullptr || scene_.cluster.now() < opened_until_);
  }
  static bool are_equal(const Entry& a, const Entry& b);
  bool are_equal(Names a, Names b) const;
  static std::uint64_t losses(EngineNode& node);
  static ClientId client_of(EngineNode& node);

  Scene& scene_;
  Prng prng_;
  FileId folder_;
  EngineNode* worker_ = nullptr;  ///< makes the changes until another process looks
  EngineNode* busy_ = nullptr;    ///< has operations under way
  int left_ = 0;                  ///< operations before the next pause
  bool removes_all_ = false;
  Change under_way_;  ///< may be executed when its process dies

  /// The possible names of the folder. Applications were told the last element.
  std::vector<Names> possible_{Names{}};
  bool must_list_ = false;      ///< the next operation lists the folder
  bool may_have_lost_ = false;  ///< there were faults since the folder was listed
  bool is_mixed_ = false;       ///< the newest change was made after a loss, and can be lost itself
  Time unsure_until_{};         ///< until then, late requests may be executed
  Holder changer_;              ///< has made the changes whose loss is possible
  Holder doomed_;               ///< others saw that it has lost its lease
  /// An open file without a name in the pool. Its process shows the name already.
  client::EmptyOpenPtr open_;
  std::string open_name_;
  Time opened_until_{};  ///< a session that failed may show its name to its process until then
  EngineNode* opener_ = nullptr;
  std::uint64_t operations_ = 0;
  std::uint64_t changes_here_ = 0;
};

}  // namespace stdchk::sim
