#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// What is under one name of a folder that has no images.
struct FolderEntry {
  FileType type = FileType::kDirectory;
  std::uint32_t mode = 0;
  std::string target;  ///< of a symbolic link
  std::map<std::string, std::string> xattrs;
  std::optional<std::uint64_t> keep;  ///< what its policy says
  auto operator<=>(const FolderEntry&) const = default;
};
/// By the path below the folder, which is itself under the empty path. Nothing: there is no folder.
using Folder = std::map<std::string, FolderEntry>;

/// A FolderScript makes, renames, exchanges, changes, reads and removes directories and symbolic
/// links of one folder in the root, and knows what the folder may hold without any of the code that
/// is tested.
///
/// One operation runs at a time. A change whose answer was lost leaves more than one possible
/// folder; the next answers decide. Then the folder is left alone until the request cannot be on
/// its way any more.
/// Owns: its model; not the cluster and the clients. Threads: one.
class FolderScript {
 public:
  using Complain = std::function<void(const std::string&)>;
  using Note = std::function<void(std::uint64_t)>;

  FolderScript(Cluster& cluster, std::string name, std::uint64_t seed, Complain complain,
               Note note);

  /// Begins the next operation, unless one runs or may still happen.
  void start_one(PlainClient& client);
  /// What it had asked for may have happened.
  void client_died(const PlainClient& client);
  bool idle() const { return run_ == nullptr; }
  std::uint64_t operations() const { return operations_; }
  /// The directory of that name in a drain directory that has all changes: what it shows of types,
  /// modes and targets must be a possible folder.
  void check_drained(const std::string& drain_directory) const;

 private:
  /// What a change makes of a folder, or why it is refused.
  using Effect = std::function<Result<Folder>(const Folder&)>;
  using Seen = std::function<bool(const Folder&)>;
  /// The operation that runs.
  struct Run {
    PlainClient* client = nullptr;
    std::string what;
    Effect effect;  ///< of the change that was asked for; none: nothing was
  };
  using Then = std::function<void(FileId)>;

  std::string pick_path();
  void make_directory(const std::string& path);
  void make_link(const std::string& path);
  void remove(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void set_mode(const std::string& path);
  void set_attribute(const std::string& path);
  void set_policy(const std::string& path);
  void read(const std::string& path);
  void read_more(const std::string& path, FileId id, FileType type);
  void list(const std::string& path, FileId id, const std::string& after,
            std::set<std::string> seen);
  /// Finds the path by its names; ends the operation when it is not there.
  void resolve(const std::string& path, Then then);
  void look_up(const std::string& path, std::size_t begin, FileId parent, Then then);
  void ask(msg::Request request, std::function<void(rpc::Answer)> done);
  void change(msg::Request request, Effect effect);
  void settle(const rpc::Answer& answer);
  /// Only folders of which that is so remain. False: it is so of none.
  bool observe(const std::string& what, const Seen& seen);
  void end(std::uint64_t outcome);

  Cluster& cluster_;
  const std::string name_;
  Prng prng_;
  Complain complain_;
  Note note_;
  std::set<Folder> possible_{Folder{}};
  Time settled_{};  ///< nothing on its way changes it after this
  std::shared_ptr<Run> run_;
  std::uint64_t operations_ = 0;
};

}  // namespace stdchk::sim
