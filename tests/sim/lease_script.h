#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// A LeaseScript has one client hold a directory and change its names in batches, while others list
/// the directory (docs/decisions/0075). Each client may die, be stopped, or be cut off.
///
/// The model knows what the holder has told its application. The pool may have the names of the last
/// answered batch, or of the batch in flight. After the return of the lease, a listing shows what
/// the application was told (N1). After the loss of the lease, a listing shows the names of one of
/// the two batches (N2, N4).
///
/// Owns: its model. Threads: one. Not: the cluster's or the clients' owner.
class LeaseScript {
 public:
  using Complain = std::function<void(const std::string&)>;
  using Note = std::function<void(std::uint64_t)>;

  LeaseScript(Cluster& cluster, std::uint64_t seed, Complain complain, Note note);

  /// Begins an operation of the client now and then.
  void start_one(PlainClient& client);
  /// The manager wants the client's lease on the directory back.
  void recalled(PlainClient& client, FileId directory);
  void client_died(const PlainClient& client);
  bool idle() const {
    return reader_ == nullptr && asking_ == nullptr && lease_ != Lease::kReturning;
  }
  std::uint64_t batches() const { return batches_; }
  std::uint64_t listings() const { return listings_; }

 private:
  using Names = std::map<std::string, FileId>;
  enum class Lease : std::uint8_t { kNone, kHeld, kReturning };
  struct Batch {
    msg::ApplyNames request;
    Names after;
  };

  void make_folder(PlainClient& client);
  void ask_lease(PlainClient& client);
  void granted(PlainClient& client, const msg::LeaseDirectory::Reply& reply);
  void change();
  void send_batch();
  void send_again();
  void batch_ended(const rpc::Answer& answer);
  void give_back();
  void lose();
  void list(PlainClient& client);
  void listed(const msg::ReadDirectory::Reply& reply);
  std::set<Names> possible() const;
  static Names names_of(const msg::ReadDirectory::Reply& reply);
  /// Wraps a callback so that it ignores answers after the lease has ended.
  template <class Argument>
  std::function<void(Argument)> while_held(std::function<void(Argument)> done) {
    return [this, number = lease_number_, done = std::move(done)](Argument argument) {
      if (lease_ != Lease::kNone && number == lease_number_) done(std::move(argument));
    };
  }

  Cluster& cluster_;
  Prng prng_;
  Complain complain_;
  Note note_;
  FileId folder_;                   ///< none: unknown
  PlainClient* asking_ = nullptr;   ///< makes the folder, or asks for the lease
  PlainClient* reader_ = nullptr;   ///< lists the folder
  std::uint64_t reader_asked_ = 0;  ///< asked_ when the listing began
  PlainClient* holder_ = nullptr;
  Lease lease_ = Lease::kNone;
  std::uint64_t lease_number_ = 0;   ///< counts the leases
  std::uint64_t asked_ = 0;          ///< counts the requests for leases
  std::uint64_t holder_number_ = 0;  ///< of LeaseDirectory
  std::uint64_t next_file_ = 0;
  std::uint64_t files_end_ = 0;
  std::uint64_t batch_number_ = 0;
  Names told_;                  ///< to the holder's application
  Names answered_;              ///< as of the last answered batch
  std::optional<Names> other_;  ///< after a lost lease, the other possible names
  std::optional<Batch> in_flight_;
  std::vector<msg::NameChange> unsent_;
  std::uint64_t batches_ = 0;
  std::uint64_t listings_ = 0;
};

}  // namespace stdchk::sim
