#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "manager/state/file.h"
#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// A SetScript writes sets of images into a folder of the root. Derived scripts say which images.
/// This class makes the folder, tracks the running operation, and removes all files at the end.
///
/// Runs one operation at a time.
/// Owns: the running operation. Threads: one. Not: the cluster's or the clients' owner.
class SetScript {
 public:
  using Complain = std::function<void(const std::string&)>;
  using Note = std::function<void(std::uint64_t)>;

  virtual ~SetScript() = default;
  SetScript(const SetScript&) = delete;
  SetScript& operator=(const SetScript&) = delete;

  /// The client has died: its operation may have happened.
  void client_died(const PlainClient& client);
  bool idle() const { return client_ == nullptr; }
  std::uint64_t operations() const { return operations_; }
  /// Removes every file and directory of the folder. None remains when the script is idle again.
  void remove_all(PlainClient& client);

 protected:
  SetScript(Cluster& cluster, std::string name, std::uint64_t seed, Complain complain, Note note)
      : cluster_(cluster),
        name_(std::move(name)),
        prng_(seed),
        complain_(std::move(complain)),
        note_(std::move(note)) {}

  /// Begins an operation.
  void run(PlainClient& client);
  void end(std::uint64_t outcome);
  /// Looks the folder up or makes it, as an operation.
  void make_folder();
  /// Asks for an extended attribute of the folder, as an operation. `done` gets whether it is set.
  void set_attribute(const std::string& name, const std::string& value,
                     std::function<void(bool)> done);
  /// Returns the folder in the manager's state. nullptr: unknown, or no manager.
  const manager::File* folder() const;
  /// The number of sets begun, for the trace of a run.
  virtual std::uint64_t sets_begun() const = 0;

  /// Wraps a callback so that it ignores answers after this operation has ended.
  template <class Argument>
  std::function<void(Argument)> while_running(std::function<void(Argument)> done) {
    return [this, number = operations_, done = std::move(done)](Argument argument) {
      if (!idle() && number == operations_) done(std::move(argument));
    };
  }

  Cluster& cluster_;
  const std::string name_;  ///< the folder's name; complaints begin with it
  Prng prng_;
  Complain complain_;
  Note note_;
  FileId folder_;                  ///< none: unknown
  PlainClient* client_ = nullptr;  ///< client of the running operation
  std::function<void()> if_lost_;  ///< records the death of that client
  std::uint64_t operations_ = 0;
  Time settled_{};  ///< no operation begins earlier

 private:
  void remove_next();
};

}  // namespace stdchk::sim
