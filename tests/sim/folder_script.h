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

/// The entry of one name in a folder without images.
struct FolderEntry {
  FileType type = FileType::kDirectory;
  std::uint32_t mode = 0;
  std::string target;  ///< target of a symbolic link
  std::map<std::string, std::string> xattrs;
  std::optional<std::uint64_t> keep;  ///< `keep` of its policy
  /// Equal for all names of one file; 0: the file never had another name.
  std::uint64_t file = 0;
  auto operator<=>(const FolderEntry&) const = default;
};
/// Entries by their path below the folder; the folder itself has the empty path. Empty map: no
/// folder.
using Folder = std::map<std::string, FolderEntry>;

/// A FolderScript makes, links, renames, exchanges, changes, reads and removes directories,
/// symbolic links and FIFOs of one folder in the root. It knows what the folder may hold, and uses
/// none of the code under test.
///
/// Runs one operation at a time. A change whose answer was lost leaves more than one possible
/// folder; the next answers decide. Until then, the script leaves the folder alone until the
/// request can no longer be in flight.
/// Owns: its model. Threads: one. Not: the cluster's or the clients' owner.
class FolderScript {
 public:
  using Complain = std::function<void(const std::string&)>;
  using Note = std::function<void(std::uint64_t)>;

  FolderScript(Cluster& cluster, std::string name, std::uint64_t seed, Complain complain,
               Note note);

  /// Begins the next operation, unless one runs or may still happen.
  void start_one(PlainClient& client);
  /// The client has died: the changes that it asked for may have happened.
  void client_died(const PlainClient& client);
  bool idle() const { return run_ == nullptr; }
  std::uint64_t operations() const { return operations_; }
  /// Checks the directory of that name in a fully drained directory. Its types, modes, link
  /// targets and hard links must be those of a possible folder.
  void check_drained(const std::string& drain_directory) const;

 private:
  /// The folder after a change, or the reason of its refusal.
  using Effect = std::function<Result<Folder>(const Folder&)>;
  using Seen = std::function<bool(const Folder&)>;
  /// The operation that runs.
  struct Run {
    PlainClient* client = nullptr;
    std::string what;
    Effect effect;  ///< the requested change; empty if none was requested
  };
  using Then = std::function<void(FileId)>;

  std::string pick_path();
  void make_directory(const std::string& path);
  void make_symlink(const std::string& path);
  void make_fifo(const std::string& path);
  void make_hard_link(const std::string& from, const std::string& to);
  void remove(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void set_mode(const std::string& path);
  void set_attribute(const std::string& path);
  void set_policy(const std::string& path);
  void read(const std::string& path);
  void read_more(const std::string& path, FileId id, FileType type);
  void list(const std::string& path, FileId id, const std::string& after,
            std::set<std::string> seen);
  /// Resolves the path name by name. Ends the operation if a name is missing.
  void resolve(const std::string& path, Then then);
  void look_up(const std::string& path, std::size_t begin, FileId parent, Then then);
  void ask(msg::Request request, std::function<void(rpc::Answer)> done);
  void change(msg::Request request, Effect effect);
  void settle(const rpc::Answer& answer);
  /// Keeps only the possible folders that satisfy `seen`. False: none does.
  bool observe(const std::string& what, const Seen& seen);
  void end(std::uint64_t outcome);

  Cluster& cluster_;
  const std::string name_;
  Prng prng_;
  Complain complain_;
  Note note_;
  std::set<Folder> possible_{Folder{}};
  Time settled_{};  ///< after this time no request in flight changes the folder
  std::shared_ptr<Run> run_;
  std::uint64_t operations_ = 0;
};

}  // namespace stdchk::sim
