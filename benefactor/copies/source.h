#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "core/values/types.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// A SourceAccess has the transports to other benefactors, and the local memory for their bytes.
struct SourceAccess {
  /// A transport, and that memory registered with it.
  struct Way {
    transport::Endpoint* endpoint = nullptr;
    const transport::MemoryRegion* region = nullptr;
  };
  std::string host_token;
  std::vector<Way> ways;
};

/// A Source is the way to another benefactor: its addresses are tried one after the other, shared
/// memory first, until one attaches.
///
/// Owns: the link; a Source that is destroyed ends its reads first. Threads: the reactor's.
class Source final : public rpc::PeerHandler {
 public:
  /// Told when it is attached, or cannot be.
  using Linked = std::function<void(const Source&, bool attached)>;
  /// `access` outlives it.
  Source(Reactor& reactor, const SourceAccess& access, ClientId client, msg::BenefactorInfo info,
         Linked linked);

  bool is_for(ClientId client, const msg::BenefactorInfo& info) const {
    return client_ == client && info_.addresses == info.addresses;
  }
  bool ready() const { return ready_; }
  void attach();
  /// `to` lies in the memory that is registered.
  Status read(std::uint64_t from, MutableByteSpan to, transport::Operation& operation);

  // rpc::PeerHandler
  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) override;
  void on_closed(rpc::Peer&, Error) override;

 private:
  void next_soon();
  void connect_next();
  void attached(const rpc::Answer& answer);

  Reactor& reactor_;
  const SourceAccess& access_;
  const ClientId client_;
  const msg::BenefactorInfo info_;
  const Linked linked_;
  std::vector<std::pair<SourceAccess::Way, std::string>> tries_;
  std::size_t next_ = 0;
  SourceAccess::Way way_;
  std::unique_ptr<rpc::Peer> peer_;
  transport::RemoteKey key_;
  bool ready_ = false;
  Lifetime lifetime_;
};

/// A Sources holds the Source of each benefactor that a copier or a stripe builder reads from.
class Sources {
 public:
  /// As of each Source.
  Sources(Reactor& reactor, const SourceAccess& access, Source::Linked linked)
      : reactor_(reactor), access_(access), linked_(std::move(linked)) {}
  /// Returns the Source of this benefactor; makes a new Source when the benefactor or the client
  /// number has changed.
  Source& of(ClientId client, const msg::BenefactorInfo& info);
  void erase(BenefactorId id) { sources_.erase(id); }
  void clear() { sources_.clear(); }

 private:
  Reactor& reactor_;
  const SourceAccess& access_;
  const Source::Linked linked_;
  std::map<BenefactorId, std::unique_ptr<Source>> sources_;
};

/// A SourceReader receives the end of each SourceRead.
class SourceReader {
 public:
  virtual void read_done(std::uint32_t index, const Status& status) = 0;

 protected:
  ~SourceReader() = default;
};

/// A SourceRead is one read in flight from a Source.
class SourceRead final : public transport::Operation {
 public:
  SourceRead(SourceReader& reader, std::uint32_t index) : reader_(&reader), index_(index) {}
  std::uint32_t index() const { return index_; }
  /// The reader no longer waits for this read.
  void forget() { reader_ = nullptr; }

 protected:
  void complete(Status status) override {
    if (reader_ != nullptr) reader_->read_done(index_, status);
  }

 private:
  SourceReader* reader_;
  const std::uint32_t index_;
};

}  // namespace stdchk::benefactor
