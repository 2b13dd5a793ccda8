#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/messages/messages.h"
#include "core/runtime/manager_addresses.h"
#include "tests/support/cluster.h"
#include "transport/rpc.h"

namespace stdchk::sim {

struct Part {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};

/// How an operation ended. `maybe`: it failed, but its change may have happened or may still
/// happen.
struct Ending {
  Status status;
  bool maybe = false;
};

/// A PlainClient speaks the client's protocol in the simplest way. It opens, places, writes,
/// commits and reads whole files. After a lost link it repeats a request under the same call id.
/// After a failed write it chooses another benefactor.
///
/// It hides nothing and trusts nothing: checkers may see all its grants.
/// Threads: one. Errors: every operation ends within kOperationDeadline.
class PlainClient final : public rpc::PeerHandler {
 public:
  using Done = std::function<void(Ending)>;
  using Loaded = std::function<void(Result<std::vector<std::byte>>)>;
  /// Called after this client has learned of a grant, or has gained access to a benefactor.
  using Enabled = std::function<void(PlainClient&)>;

  PlainClient(Cluster& cluster, std::string name, Enabled on_enabled);
  ~PlainClient() override;  ///< dies as by SIGKILL
  PlainClient(const PlainClient&) = delete;
  PlainClient& operator=(const PlainClient&) = delete;

  void store(const std::string& name, std::vector<Part> parts, bool truncate, Done done,
             FileId parent = kRootFile);
  void load(const std::string& name, Loaded done, FileId parent = kRootFile);
  void remove(const std::string& name, Done done);
  void rename(const std::string& from, const std::string& to, Done done);
  /// Sends any other request to the manager.
  void ask(msg::Request request, rpc::Peer::Callback done);

  /// Called when the manager wants a lease of this client on a directory back.
  std::function<void(PlainClient&, FileId)> on_recall;

  Node& node() { return node_; }
  bool registered() const { return registered_; }
  ClientId id() const { return id_; }
  /// Whether this client still belongs to an earlier manager's epoch. Its answers may then be
  /// outdated.
  bool behind() const { return cluster_.is_behind(id_); }
  /// Grants of sessions that this client has not ended.
  const std::map<GrantId, std::pair<SessionId, Grant>>& known() const { return known_; }
  /// Violations of rule M4 that this client has seen since the last call.
  std::vector<std::string> take_wrong() { return std::exchange(wrong_, {}); }
  /// Whether a write to that benefactor could start now.
  bool reaches(BenefactorId benefactor) const;

  void on_connected(rpc::Peer& peer) override;
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_notice(rpc::Peer& peer, msg::Notice notice) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  struct Transfer;
  /// Registered memory of one operation.
  struct Buffer {
    std::vector<std::byte> bytes;
    std::unique_ptr<transport::MemoryRegion> region;
    transport::LocalPiece piece(std::size_t offset, std::size_t length) {
      return {bytes.data() + offset, length, region.get()};
    }
  };
  friend struct StoreOperation;
  friend struct LoadOperation;
  /// A link to a benefactor, with the callbacks waiting for it.
  struct Access final : rpc::PeerHandler {
    Access(PlainClient& of, BenefactorId to) : client(of), benefactor(to) {}
    void on_connected(rpc::Peer& peer) override;
    void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) override {}
    void on_closed(rpc::Peer& peer, Error why) override;
    PlainClient& client;
    BenefactorId benefactor;
    std::unique_ptr<rpc::Peer> peer;
    transport::RemoteKey key;
    bool ready = false;
    std::vector<std::function<void(Result<Access*>)>> waiting;
  };
  using Waiter = std::function<void(Result<Access*>)>;

  void connect();
  void heartbeat();
  void take_list(const std::vector<msg::BenefactorInfo>& list);
  /// Asks the manager until `end`. After a lost link, asks again under the same number.
  void call(msg::Request request, Time end, rpc::Peer::Callback done);
  void send(std::uint64_t number, ClientId as, msg::Request request, Time end,
            rpc::Peer::Callback done);
  /// Asks under one number until an answer arrives, or four times the deadline of a call have
  /// passed.
  void insist(std::uint64_t number, ClientId as, const msg::Request& request,
              const rpc::Peer::Callback& done, int rounds = 3);
  void with_access(BenefactorId benefactor, Waiter waiter);
  void end_access(BenefactorId benefactor, Error why);
  void transfer(bool write, BenefactorId benefactor, std::uint64_t offset,
                std::vector<transport::LocalPiece> pieces, std::function<void(Status)> done);
  void run_transfer(Transfer& transfer, Access& access);
  void finish_transfer(Transfer& transfer, Status status);
  std::shared_ptr<Buffer> make_buffer(std::size_t bytes);
  Time now() const { return cluster_.now(); }
  void add_grants(SessionId session, const std::vector<Grant>& grants);
  void forget(SessionId session);

  Cluster& cluster_;
  Node& node_;
  Enabled on_enabled_;
  std::unique_ptr<rpc::Peer> manager_;
  ManagerAddresses managers_;
  Epoch epoch_;
  ClientId id_;
  bool registered_ = false;
  bool dying_ = false;
  std::uint64_t generation_ = 0;
  TimerId reconnect_;
  TimerId heartbeat_;
  std::vector<std::function<void()>> when_registered_;
  std::map<BenefactorId, msg::BenefactorInfo> benefactors_;
  std::map<BenefactorId, std::unique_ptr<Access>> accesses_;
  std::map<std::uint64_t, std::unique_ptr<Transfer>> transfers_;
  std::uint64_t transfers_made_ = 0;
  std::vector<std::weak_ptr<Buffer>> buffers_;
  std::map<GrantId, std::pair<SessionId, Grant>> known_;
  std::vector<std::string> wrong_;
};

}  // namespace stdchk::sim
